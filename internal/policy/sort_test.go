package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// However many endpoints there are, and in however many bytes their addresses differ,
// each comes once, in the order of the addresses.
func TestBackendsAreInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, c := range []struct {
		name string
		n    int
		addr func() string
	}{
		{"few", 10, func() string { return fmt.Sprintf("10.%d.0.%d", r.IntN(256), r.IntN(256)) }},
		{"many that differ in two bytes", 200, func() string { return fmt.Sprintf("10.%d.0.%d", r.IntN(256), r.IntN(256)) }},
		{"many that differ in eight bytes", 200, func() string {
			return fmt.Sprintf("fd%02x:%x::%x:%x:%x", r.IntN(256), r.IntN(65536), r.IntN(65536), r.IntN(65536), r.IntN(2))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var eps []string
			for range c.n {
				eps = append(eps, c.addr())
			}
			eps = append(eps, eps...) // each is in two slices
			r.Shuffle(len(eps), func(i, j int) { eps[i], eps[j] = eps[j], eps[i] })
			svc := service(model.Service{ClusterIPs: addrs("10.96.0.1", "fd00:96::1")})
			half := append(append(slices.Clone(eps[:c.n]), "--"), eps[c.n:]...)
			var got, want []netip.Addr
			res := policy.Frontends(policy.Inputs{Service: &svc, Slices: sliceSet(svc.Key, svc.Ports, half)})
			for i := range res.Frontends {
				for _, b := range res.Frontends[i].Backends {
					got = append(got, b.Addr)
				}
			}
			for _, a := range eps {
				want = append(want, netip.MustParseAddr(a))
			}
			slices.SortFunc(want, netip.Addr.Compare)
			if want = slices.Compact(want); !slices.Equal(got, want) {
				t.Errorf("%d endpoints %v, want %d: %v", len(got), got, len(want), want)
			}
		})
	}
}
