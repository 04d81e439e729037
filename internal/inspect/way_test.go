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

// TestWayOfAClient: who asks decides which endpoints he gets, whether at all, and which source these see. The node itself sends no
// packet that the property test could hold this against.
func TestWayOfAClient(t *testing.T) {
	addr := netip.MustParseAddr
	here, there := model.Backend{Addr: addr("10.244.0.5"), Port: 80, Weight: 1, Local: true}, model.Backend{Addr: addr("10.244.9.5"), Port: 80, Weight: 1}
	view := model.NodeView{NodeAddrs: []netip.Addr{addr("192.0.2.1")}, Local: model.LocalDetector{Mode: model.DetectCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}}
	cluster := model.Frontend{Kind: model.ClusterIP, Key: model.FrontendKey{Family: model.IPv4}, Verdict: model.Forward, Backends: []model.Backend{here, there}}
	local := cluster
	local.Kind, local.LocalOnly, local.LocalVerdict, local.LocalBackends = model.LoadBalancer, true, model.Forward, []model.Backend{here}
	empty := local
	empty.LocalVerdict, empty.LocalBackends = model.Drop, nil
	guarded := cluster
	guarded.Kind, guarded.Masquerade, guarded.Guarded, guarded.SourceRanges = model.LoadBalancer, true, true, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	for _, c := range []struct {
		name       string
		f          *model.Frontend
		from       string
		verdict    string
		count      int
		masquerade string
	}{
		{"a pod", &cluster, "10.244.0.9", "forward", 2, ""},
		{"the endpoint itself", &cluster, "10.244.0.5", "forward", 2, Hairpin},
		{"an endpoint on another node", &cluster, "10.244.9.5", "forward", 2, ""},
		{"a stranger", &cluster, "198.51.100.7", "forward", 2, "the client is not a pod"},
		{"a pod, policy Local", &local, "10.244.0.9", "forward", 2, ""},
		{"the node, policy Local", &local, "192.0.2.1", "forward", 2, "the packet comes from this node"},
		{"localhost, policy Local", &local, "127.0.0.1", "forward", 2, "the packet comes from this node"},
		{"a stranger, policy Local", &local, "198.51.100.7", "forward", 1, ""},
		{"a stranger, policy Local and nothing here", &empty, "198.51.100.7", "drop", 0, ""},
		{"the node, policy Local and nothing here", &empty, "192.0.2.1", "forward", 2, "the packet comes from this node"},
		{"let in", &guarded, "198.51.100.7", "forward", 2, "external traffic under policy Cluster"},
		{"shut out", &guarded, "10.244.0.9", "drop", 0, ""},
	} {
		w := WayOf(c.f, &view, ClientOf(addr(c.from), &view, func(netip.Addr) string { return "" }))
		if w.Verdict != c.verdict || w.Count != c.count || w.Masquerade != c.masquerade || (w.Why == "") == (c.verdict == "drop") {
			t.Errorf("%s: %+v, want %s to %d, masqueraded %q", c.name, w, c.verdict, c.count, c.masquerade)
		}
	}
}

// TestClientByDevice: where pods are recognized by the device that they are reached by, the node's own addresses are no pods whatever the
// device.
func TestClientByDevice(t *testing.T) {
	addr := netip.MustParseAddr
	device := func(a netip.Addr) string {
		return map[string]string{"10.244.0.9": "cali7", "192.0.2.1": "cali7", "198.51.100.7": "eth0"}[a.String()]
	}
	for _, c := range []struct {
		mode      model.LocalMode
		link      string
		from      string
		pod, node bool
	}{
		{model.DetectInterfaceNamePrefix, "cali", "10.244.0.9", true, false},
		{model.DetectInterfaceNamePrefix, "cali", "198.51.100.7", false, false},
		{model.DetectInterfaceNamePrefix, "cali", "192.0.2.1", false, true},
		{model.DetectInterfaceNamePrefix, "", "203.0.113.7", false, false}, // reached by no device
		{model.DetectBridgeInterface, "cali", "10.244.0.9", false, false},
		{model.DetectBridgeInterface, "cali7", "10.244.0.9", true, false},
	} {
		v := model.NodeView{NodeAddrs: []netip.Addr{addr("192.0.2.1")}, Local: model.LocalDetector{Mode: c.mode, Interface: c.link}}
		if got := ClientOf(addr(c.from), &v, device); got.Pod != c.pod || got.Node != c.node {
			t.Errorf("%s, device %q: %+v, want pod %t, node %t", c.from, c.link, got, c.pod, c.node)
		}
	}
}

// TestWayThroughTheAgent: where the agent carries connections, endpoints see the agent's address, unless their Service keeps the source and the
// client is not one of them. A Service that refuses all clients has no socket that could drop a connection.
func TestWayThroughTheAgent(t *testing.T) {
	addr := netip.MustParseAddr
	one, two := model.Backend{Addr: addr("10.244.0.5"), Port: 80, Weight: 1}, model.Backend{Addr: addr("10.244.9.5"), Port: 80, Weight: 1}
	view := model.NodeView{Local: model.LocalDetector{Mode: model.DetectCIDR, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}}
	plain := model.Frontend{Kind: model.ClusterIP, Key: model.FrontendKey{Family: model.IPv4}, Verdict: model.Forward, Backends: []model.Backend{one, two}}
	kept := plain
	kept.Relay.KeepSource = true
	local := kept
	local.Kind, local.LocalOnly, local.LocalVerdict, local.LocalBackends = model.LoadBalancer, true, model.Forward, []model.Backend{one}
	guarded := plain
	guarded.Kind, guarded.Guarded, guarded.SourceRanges = model.LoadBalancer, true, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	empty := guarded
	empty.Verdict, empty.Backends = model.Reject, nil
	emptyLocal := empty
	emptyLocal.LocalOnly, emptyLocal.LocalVerdict = true, model.Reject
	noneHere := empty
	noneHere.LocalOnly, noneHere.LocalVerdict = true, model.Drop
	for _, c := range []struct {
		name       string
		f          *model.Frontend
		from       string
		verdict    string
		masquerade string
	}{
		{"a pod", &plain, "10.244.0.9", "forward", byAgent},
		{"a pod, its address kept", &kept, "10.244.0.9", "forward", ""},
		{"an endpoint elsewhere, its address kept", &kept, "10.244.9.5", "forward", Hairpin},
		{"a stranger among endpoints of others", &local, "198.51.100.7", "forward", ""},
		{"shut out", &guarded, "198.51.100.7", "drop", ""},
		{"shut out of nothing", &empty, "198.51.100.7", "reject", ""},
		{"shut out of nothing, policy Local", &emptyLocal, "198.51.100.7", "reject", ""},
		{"shut out, nothing for the others", &noneHere, "198.51.100.7", "drop", ""},
	} {
		client := ClientOf(addr(c.from), &view, func(netip.Addr) string { return "" })
		w := WayOf(c.f, &view, client)
		if w.relay(c.f, &client); w.Verdict != c.verdict || w.Masquerade != c.masquerade {
			t.Errorf("%s: %+v, want %s, masqueraded %q", c.name, w, c.verdict, c.masquerade)
		}
	}
	for _, w := range Ways(&empty, &view) { // of all clients
		if w.relay(&empty, nil); w.Verdict != "reject" {
			t.Errorf("of nothing: %+v", w)
		}
	}
}

// TestSourceOfAHairpin: the source that an endpoint sees is undecided only if another endpoint may be
// chosen.
func TestSourceOfAHairpin(t *testing.T) {
	f := model.Frontend{Kind: model.ClusterIP, Key: model.FrontendKey{Family: model.IPv4}, Verdict: model.Forward}
	client := Client{Addr: netip.MustParseAddr("10.244.0.5"), Pod: true}
	view := model.NodeView{}
	for i, want := range []string{"node", "either"} {
		f.Backends = append(f.Backends, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(5 + i)}), Port: 80, Weight: 1, Local: true})
		var tr Trace
		if tr.follow(&f, WayOf(&f, &view, client), client, false); tr.Source != want || len(tr.Targets) != i+1 {
			t.Errorf("of %d: %+v, want source %s", i+1, tr, want)
		}
	}
}
