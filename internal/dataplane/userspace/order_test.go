package userspace

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// checkedRoutes calls a function before each deletion.
type checkedRoutes struct {
	fakeRoutes
	before func()
}

func (r *checkedRoutes) Delete(a netip.Addr) error {
	r.before()
	return r.fakeRoutes.Delete(a)
}

// TestDeletionOrder: a batch deletes sockets first, then Frontends, then routes, whatever its own order is. A socket without its route would
// accept connections that never end.
func TestDeletionOrder(t *testing.T) {
	routes, deleted := &checkedRoutes{}, 0
	d := newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes})
	routes.before = func() {
		if deleted++; len(d.sockets)+len(d.targets) > 0 {
			t.Errorf("a route is deleted while %d sockets and %d Frontends are there", len(d.sockets), len(d.targets))
		}
	}
	f := &model.Frontend{Kind: model.ClusterIP, Verdict: model.Forward, Backends: []model.Backend{{Addr: netip.MustParseAddr("127.0.0.1"), Port: 9, Weight: 1}},
		Key: model.FrontendKey{Family: model.IPv4, Addr: netip.MustParseAddr("127.0.5.9"), Port: 8080, Protocol: model.TCP}}
	var b dataplane.Batch
	d.Render(f, &model.NodeView{}, func(o dataplane.Object) { b.Ops = append(b.Ops, dataplane.Op{Key: o.Key, Want: o.Value}) })
	for range 2 { // the second turn deletes
		if _, err := d.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Ops {
			b.Ops[i].Have, b.Ops[i].Want = b.Ops[i].Want, ""
		}
	}
	if deleted != 1 {
		t.Errorf("%d routes were deleted, want 1", deleted)
	}
}
