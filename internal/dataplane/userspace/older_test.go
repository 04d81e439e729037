package userspace

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/kernel/link"
)

// TestGiveBack: a start deletes the routes that an earlier run left, but not those that open connections need.
func TestGiveBack(t *testing.T) {
	used, left := netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("198.51.100.9")
	routes := &fakeRoutes{list: []netip.Addr{used, left}}
	talks := func() ([]link.Talk, error) {
		return []link.Talk{{Own: netip.AddrPortFrom(used, 80), Peer: netip.MustParseAddrPort("192.0.2.1:40000"), Protocol: unix.IPPROTO_TCP}}, nil
	}
	d := newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes, Talks: talks})
	for _, want := range []int{1, 0} {
		if n, err := d.GiveBack(t.Context()); n != want || err != nil {
			t.Errorf("%d routes deleted, %v; want %d", n, err, want)
		}
		if list, err := routes.List(); err != nil || !slices.Equal(list, []netip.Addr{used}) {
			t.Errorf("routes to %v, %v; want %v", list, err, used)
		}
	}
	if n, err := newDriver(t, Params{}).GiveBack(t.Context()); n != 0 || err != nil {
		t.Errorf("%d routes deleted without routes, %v", n, err)
	}
}
