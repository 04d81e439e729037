package conntrack

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

// EndUnanswered ends the flows that clients began to addresses of ours while no rule translated them, and that nobody has answered. The
// kernel decides about translation with a flow's first packet only: without this, the client's next attempts would go on untranslated, and
// be refused, for as long as it tries, and so would a new connection from a port that such a flow had (for two minutes in TCP). The next
// packet begins such a flow anew. It gives how many it ended.
func EndUnanswered(ctx context.Context, table conntrack.Table, mine func(netip.Addr) bool) (int, error) {
	var stale []conntrack.Flow
	interrupted := table.Flows(ctx, conntrack.Filter{Unanswered: true}, func(x conntrack.Flow) {
		// Zones other than 0 belong to virtual switches (see stale).
		if x.Zone == 0 && !x.Translated() && mine(x.Orig.Dst.Addr()) {
			stale = append(stale, x)
		}
	})
	if errors.Is(interrupted, conntrack.ErrInterrupted) {
		interrupted = nil // what came is true; what may be missing is as if it had begun a moment later
	}
	n, err := table.Delete(ctx, stale)
	return n, errors.Join(interrupted, err)
}
