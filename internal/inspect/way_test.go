package inspect

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// TestChoiceOfScheduler: IPVS does not choose at random, and says so of each kind of Frontend.
func TestChoiceOfScheduler(t *testing.T) {
	two := []model.Backend{{Addr: netip.MustParseAddr("10.0.0.1"), Port: 1, Weight: 1}, {Addr: netip.MustParseAddr("10.0.0.2"), Port: 1, Weight: 1}}
	for _, c := range []struct {
		f         model.Frontend
		scheduler string
		want      string
	}{
		{model.Frontend{Backends: two}, "", "at random, 1/2 each"},
		{model.Frontend{Backends: two}, "rr", "by the scheduler rr"},
		{model.Frontend{Backends: two, IPVSScheduler: "lc"}, "rr", "by the scheduler lc"},
		{model.Frontend{Backends: two, AffinityTimeout: time.Hour}, "rr", "by the scheduler rr, then the same one for 1h0m0s (session affinity)"},
		{model.Frontend{Backends: two, ConsistentHash: true}, "rr", "by a hash of the client's address"},
		{model.Frontend{Backends: two[:1]}, "rr", ""},
	} {
		c.f.Verdict = model.Forward
		w := wholeWay(&c.f)
		if w.schedule(&c.f, c.scheduler); w.Choice != c.want {
			t.Errorf("with scheduler %q: %q, want %q", c.scheduler, w.Choice, c.want)
		}
	}
}
