package app

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// countFor bounds one count of remembered clients: a scrape waits for it.
const countFor = 5 * time.Second

// addAffinity counts the clients in session affinity at each scrape, on its own netlink
// connection. The agent starts even if they cannot be counted.
func (a *agent) addAffinity() {
	if a.cfg.Mode != nftables.Name {
		return
	}
	k, err := nft.Open(nft.Config{})
	if err != nil {
		a.log.Warn("clients of session affinity are not counted", "error", err)
		return
	}
	count := nftables.NewOccupancy(k)
	read := func(pick func(nftables.Remembered) uint64) func() (uint64, error) {
		return func() (uint64, error) {
			ctx, stop := context.WithTimeout(context.Background(), countFor)
			defer stop()
			r, err := count.Read(ctx)
			return pick(r), err
		}
	}
	a.metrics.AffinityCounters(
		read(func(r nftables.Remembered) uint64 { return r.Clients }),
		read(func(r nftables.Remembered) uint64 { return r.Full }))
}
