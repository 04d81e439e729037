package userspace

import (
	"context"
	"net/netip"
	"os/exec"
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

// TestRoutesOneByOne: only what is ours alone counts, in both families.
func TestRoutesOneByOne(t *testing.T) {
	run := func(line string) { // in the namespace of this test
		t.Helper()
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run("ip link set lo up && ip addr add 10.97.3.3/32 dev lo && ip route add local 10.97.0.0/16 dev lo && ip route add local fd00:97::/64 dev lo")
	defer run("ip addr del 10.97.3.3/32 dev lo && ip route del local 10.97.0.0/16 dev lo && ip route del local fd00:97::/64 dev lo")
	routes, err := link.OpenLocals()
	if err != nil {
		t.Fatal(err)
	}
	has := func(a netip.Addr, want bool) {
		t.Helper()
		if is, err := routes.Has(a); is != want || err != nil {
			t.Errorf("%s is ours: %v, %v; want %v", a, is, err, want)
		}
	}
	has(netip.MustParseAddr("10.97.3.3"), false)
	has(netip.MustParseAddr("203.0.113.1"), false)
	for _, a := range []netip.Addr{netip.MustParseAddr("10.97.0.10"), netip.MustParseAddr("fd00:97::10")} {
		has(a, false)
		if err := routes.Add(a); err != nil {
			t.Fatal(err)
		}
		has(a, true)
		has(a.Next(), false)
		if err := routes.Delete(a); err != nil {
			t.Fatal(err)
		}
		has(a, false)
	}
}
