package ipvs

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

// TestNodePortsOfKubeProxy: of the virtual servers on the node's own addresses those at kube-proxy's NodePorts go, but for what is in our
// account, or excluded. One with connections is counted, and gets no new ones.
func TestNodePortsOfKubeProxy(t *testing.T) {
	const port = 30_080
	w := newWorld(t, Params{})
	f := dataplanetest.ClusterIP(model.IPv4, 0, 2)
	f.Kind, f.Key.Addr, f.Key.Port = model.NodePort, netip.Addr{}, port
	w.Want(f.Service, f)
	w.Sync(t)
	ours, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
	if err != nil || len(ours) == 0 {
		t.Fatalf("ours: %v, %v", ours, err)
	}
	at := func(addr string, protocol uint8, port uint16) ipvs.VirtualKey {
		return ipvs.VirtualKey{Addr: netip.MustParseAddr(addr), Protocol: protocol, Port: port}
	}
	gone := at("172.18.0.2", 6, port)
	stay := []ipvs.VirtualKey{at("172.18.0.2", 17, port), at("172.18.0.2", 6, 30_081), at("198.51.100.1", 6, port)}
	to := netip.MustParseAddrPort("10.244.1.9:8080")
	for _, k := range append([]ipvs.VirtualKey{gone}, stay...) {
		if err := w.ipvs.PutVirtual(t.Context(), ipvs.Virtual{VirtualKey: k, Scheduler: "rr"}); err != nil {
			t.Fatal(err)
		}
		if err := w.ipvs.PutReal(t.Context(), k, ipvs.Real{At: to, Weight: 1}); err != nil {
			t.Fatal(err)
		}
	}
	w.ipvs.Connect(gone, to, 2, 1)
	other := New(Params{NFT: w.rules.Neighbour(), IPVS: w.ipvs, Addresses: w.ipvs, Exclude: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}})
	theirs := other.Theirs(map[ipvs.NodePort]bool{{Protocol: 6, Port: port}: true})
	if n, err := theirs.Retire(t.Context()); n != 3 || err != nil {
		t.Errorf("retire: %d connections, %v", n, err)
	}
	for k, want := range map[ipvs.VirtualKey]uint32{gone: 0, stay[0]: 1, stay[1]: 1, stay[2]: 1} {
		if reals, err := w.ipvs.Reals(t.Context(), k); err != nil || len(reals) != 1 || reals[0].Weight != want {
			t.Errorf("%s has %v, %v; want weight %d", k, reals, err, want)
		}
	}
	if err := theirs.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
	has := func(k ipvs.VirtualKey) bool {
		return slices.ContainsFunc(list, func(v ipvs.Virtual) bool { return v.VirtualKey == k })
	}
	if err != nil || has(gone) || len(list) != len(ours)+len(stay) {
		t.Errorf("after clean-up: %v, %v", list, err)
	}
}
