package ipvs

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// TestGiveBack: before any Service is known, what b6e3e2b left is changed so that of an address that may be another host's only the Services'
// ports are taken. ClusterIPs stay on the device. The second start, and the first sync, change nothing of that.
func TestGiveBack(t *testing.T) {
	w := newWorld(t, Params{})
	inside, outside := dataplanetest.ClusterIP(model.IPv4, 0, 2), dataplanetest.ClusterIP(model.IPv4, 1, 2)
	at := netip.MustParseAddr("198.51.100.9")
	outside.Kind, outside.Key.Addr = model.LoadBalancer, at
	w.Want(inside.Service, inside)
	w.Want(outside.Service, outside)
	w.Sync(t)
	asOlder(t, w, at)

	next := New(w.d.p)
	for turn, want := range []int{1, 0} {
		if n, err := next.GiveBack(t.Context(), 14); n != want || err != nil {
			t.Fatalf("start %d: %d addresses given back, %v; want %d", turn+1, n, err, want)
		}
		addrs, err := w.ipvs.List(t.Context())
		if err != nil || !slices.Equal(addrs, []netip.Addr{inside.Key.Addr}) {
			t.Errorf("start %d: %v on the device, %v; want %v", turn+1, addrs, err, inside.Key.Addr)
		}
		routes, err := w.ipvs.Routes(t.Context())
		mark, err2 := w.ipvs.Rule(t.Context(), false)
		if err != nil || err2 != nil || !slices.Equal(routes, []netip.Addr{at}) || mark != 1<<12 {
			t.Errorf("start %d: routes %v by mark %#x, %v, %v; want %v", turn+1, routes, mark, err, err2, at)
		}
	}
	bed := dataplanetest.NewBed(next, dataplanetest.View())
	bed.Load(t)
	bed.Base()
	bed.Want(inside.Service, inside)
	bed.Want(outside.Service, outside)
	for _, op := range bed.Pending() {
		if k := op.Key; k.Kind == kindAddress || k.Kind == kindRoute || k.Kind == kindTaken && k.Family == model.IPv4 {
			t.Errorf("the first sync changes %s from %q to %q", next.KeyString(k), op.Have, op.Want)
		}
	}
	bed.Sync(t)
}

// asOlder makes what this version has written for an address into what b6e3e2b has: the whole address on the device, no rule, no route.
func asOlder(t *testing.T, w *world, at netip.Addr) {
	t.Helper()
	var b nft.Batch
	for _, f := range allFamilies() {
		b.FlushChain(tableRef(f).Chain(chainPrerouting))
		b.DelChain(tableRef(f).Chain(chainPrerouting))
		b.DelSet(tableRef(f).Set("taken"))
	}
	b.AddElement(tableRef(model.IPv4).Set("addresses"), &nft.Element{Key: nft.AppendAddr(nil, at)})
	if _, err := w.rules.Neighbour().Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.ipvs.SetRule(t.Context(), false, 0), w.ipvs.SetRule(t.Context(), true, 0),
		w.ipvs.RemoveRoute(t.Context(), at), w.ipvs.Add(t.Context(), at)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestGiveBackWithoutTable: without the agent's own table nothing says what an address is, and the device may be kube-proxy's.
func TestGiveBackWithoutTable(t *testing.T) {
	w := newWorld(t, Params{})
	var b nft.Batch
	for _, f := range allFamilies() {
		b.DelTable(tableRef(f))
	}
	_, err := w.rules.Neighbour().Commit(t.Context(), &b)
	for _, err := range []error{err, w.ipvs.SetRule(t.Context(), false, 0), w.ipvs.SetRule(t.Context(), true, 0), w.ipvs.Add(t.Context(), netip.MustParseAddr("198.51.100.9"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := New(w.d.p).GiveBack(t.Context(), 14); n != 0 || err != nil {
		t.Errorf("%d addresses given back, %v; want none", n, err)
	}
	if has, err := w.ipvs.Has(t.Context(), netip.MustParseAddr("198.51.100.9")); !has || err != nil {
		t.Errorf("the address is there: %v, %v", has, err)
	}
}
