package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/internal/dataplane/offload"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/model"
)

// maxCounted is how many flows conntrack may hold for the fast path's to be counted at a
// scrape: reading them all costs a processor about a microsecond and a half each.
const maxCounted = 65_536

// countOffload feeds the metrics, on connections of its own.
func (a *agent) countOffload() {
	if a.offload == nil {
		return
	}
	k, err := nft.Open(nft.Config{})
	table, tableErr := conntrack.Open(conntrack.Config{})
	var mu sync.Mutex // the connections belong to one scrape at a time
	a.metrics.Offload(func() metrics.Offload {
		mu.Lock()
		defer mu.Unlock()
		ctx, stop := context.WithTimeout(context.Background(), countFor)
		defer stop()
		st := a.offload.Status()
		out := metrics.Offload{Threshold: st.Threshold, Devices: st.Devices, Refused: st.Refused, TakenErr: err, NowErr: tableErr}
		if err == nil {
			out.Taken, out.TakenErr = offload.Taken(ctx, k)
		}
		if tableErr == nil {
			out.Now, out.NowErr = countOffloaded(ctx, table, readFlows())
		}
		return out
	})
}

// countOffloaded counts the flows that a flowtable carries.
func countOffloaded(ctx context.Context, table conntrack.Table, held *inspect.Flows) (n int, err error) {
	if held == nil || held.Count > maxCounted {
		return 0, fmt.Errorf("conntrack does not tell how many flows it holds, or more than %d", maxCounted)
	}
	for _, family := range [...]conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		for _, protocol := range [...]model.Protocol{model.TCP, model.UDP} {
			err := table.Flows(ctx, conntrack.Filter{Family: family, Protocol: uint8(protocol)}, func(x conntrack.Flow) {
				if x.Offloaded {
					n++
				}
			})
			if err != nil && !errors.Is(err, conntrack.ErrInterrupted) { // then some may be missing, which a gauge can bear
				return 0, err
			}
		}
	}
	return n, nil
}
