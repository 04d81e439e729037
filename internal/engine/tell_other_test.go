package engine

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/internal/model"
)

// A Service that gains an address because another one goes has not changed itself; the
// followers are told of it all the same, or conntrack would know nothing of its flows.
func TestTheFollowersHearOfWhoGainsAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			first, second := svcEvent(1, 80), svcEvent(2, 80)
			for i, ev := range []model.Event{first, second} {
				ev.Service.Value.Created = int64(i)
				ev.Service.Value.ExternalIPs = []netip.Addr{netip.MustParseAddr("203.0.113.1")}
			}
			b.put(first, second, sliceEvent(1, 1), sliceEvent(2, 2), synced)
			synctest.Wait()
			was := len(b.turns())
			b.put(goneEvent(1))
			synctest.Wait()
			for _, turn := range b.turns()[was:] {
				for _, d := range turn.Decided {
					if d.Key == second.Service.Key && len(d.Result.Frontends) == 2 {
						return
					}
				}
			}
			t.Errorf("nobody is told that the other Service has the address now: %+v", b.turns()[was:])
		})
	})
}
