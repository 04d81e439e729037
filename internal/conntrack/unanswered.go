package conntrack

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

// EndUnanswered deletes the flows that clients began to addresses of Services while no rule translated them, and that have received
// no reply. The kernel decides about translation with a flow's first packet only. Without this, the client's retries would go on
// untranslated, and be refused, for as long as it retries, and so would a new connection from a port that such a flow had (for two
// minutes in TCP). The next packet begins a new flow. It returns the number of deleted flows.
func EndUnanswered(ctx context.Context, table conntrack.Table, mine func(netip.Addr) bool) (int, error) {
	var stale []conntrack.Flow
	interrupted := table.Flows(ctx, conntrack.Filter{Unanswered: true}, func(x conntrack.Flow) {
		// Zones other than 0 belong to virtual switches (see stale).
		if x.Zone == 0 && !x.Translated() && mine(x.Orig.Dst.Addr()) {
			stale = append(stale, x)
		}
	})
	if errors.Is(interrupted, conntrack.ErrInterrupted) {
		interrupted = nil // the flows that were returned are valid; a missing one is handled as if it had begun a moment later
	}
	n, err := table.Delete(ctx, stale)
	return n, errors.Join(interrupted, err)
}
