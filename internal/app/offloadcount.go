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
			var c offload.Counts
			c, out.TakenErr = offload.ReadCounts(ctx, k)
			out.Taken, out.Excluded, out.Impossible = c.Taken, c.Excluded, c.Impossible
		}
		if tableErr == nil {
			out.NowErr = countOffloaded(ctx, table, readFlows(), &out)
		}
		return out
	})
}

// countOffloaded counts the flows that a flowtable carries, and what they have carried.
func countOffloaded(ctx context.Context, table conntrack.Table, held *inspect.Flows, into *metrics.Offload) error {
	if held == nil || held.Count > maxCounted {
		return fmt.Errorf("conntrack reports no number of flows, or more than %d", maxCounted)
	}
	for _, family := range [...]conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		for _, protocol := range [...]model.Protocol{model.TCP, model.UDP} {
			err := table.Flows(ctx, conntrack.Filter{Family: family, Protocol: uint8(protocol)}, func(x conntrack.Flow) {
				if x.Offloaded {
					into.Now++
					into.Packets, into.Bytes = into.Packets+x.Packets, into.Bytes+x.Bytes
				}
			})
			if err != nil && !errors.Is(err, conntrack.ErrInterrupted) { // then some may be missing, which a gauge can bear
				return err
			}
		}
	}
	return nil
}
