package userspace

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// A route that somebody else deletes is an alarm, and is known to be gone until it has
// been looked at; what the driver does itself is no change.
func TestRouteThatGoes(t *testing.T) {
	routes, err := link.OpenLocals()
	if err != nil {
		t.Fatal(err)
	}
	d := newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes})
	alarm := make(chan struct{}, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Watch(ctx, func() { alarm <- struct{}{} }) }()
	rung := func(why string) {
		t.Helper()
		select {
		case <-alarm:
		case <-time.After(patience.Of(30 * time.Second)):
			t.Fatalf("no alarm: %s", why)
		}
	}
	rung("the watch has begun")
	changed := func(want bool, when string) {
		t.Helper()
		if got, err := d.Changed(t.Context()); err != nil || got != want {
			t.Errorf("%s: changed is %v, %v", when, got, err)
		}
	}
	var ops []dataplane.Op
	for _, a := range []string{"10.96.0.61", "fd00:10:96::61"} {
		at := netip.MustParseAddr(a)
		ops = append(ops, dataplane.Op{Key: dataplane.Key{Kind: kindRoute, Family: model.FamilyOf(at), ID: a}, Want: present})
	}
	apply := func() {
		t.Helper()
		if _, err := d.Apply(t.Context(), dataplane.Batch{Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	changed(false, "after the first write")
	for i := range ops {
		if err := routes.Delete(netip.MustParseAddr(ops[i].Key.ID)); err != nil {
			t.Fatal(err)
		}
		rung(ops[i].Key.ID + " is gone")
		changed(true, "after "+ops[i].Key.ID+" has gone")
		apply()
		changed(false, "after "+ops[i].Key.ID+" is here again")
	}
	for i := range ops {
		ops[i].Have, ops[i].Want = present, ""
	}
	apply()
	rung("our own deletion")
	changed(false, "after our own deletion")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
