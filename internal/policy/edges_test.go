package policy_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// A family without an endpoint here is named, once, and only for a Local policy.
func TestNoLocalFamilies(t *testing.T) {
	both, ports := addrs("10.96.0.1", "fd00::1"), []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 80}, {Name: "b", Protocol: model.TCP, Port: 81}}
	for name, c := range map[string]struct {
		svc  model.Service
		want []model.Family
	}{
		"internal": {model.Service{InternalLocal: true}, []model.Family{model.IPv4}},
		"external": {model.Service{ExternalLocal: true}, []model.Family{model.IPv4}},
		"neither":  {model.Service{}, nil},
	} {
		c.svc.ClusterIPs, c.svc.Ports = both, ports
		svc := service(c.svc)
		if got := frontends(&svc, []string{"10.1.0.1@n2", "fd01::1@n1"}).NoLocalFamilies; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A note names the port and the family that it is about.
func TestNotesNameTheirPort(t *testing.T) {
	svc := service(model.Service{ClusterIPs: addrs("10.96.0.1", "fd00::1")})
	notes := frontends(&svc, []string{"10.1.0.1"}).Notes
	if len(notes) != 1 || notes[0].Port != "http" || notes[0].Family != model.IPv6 {
		t.Errorf("notes: %+v", notes)
	}
}

// A weight by address goes before one by host name.
func TestWeightByAddressGoesFirst(t *testing.T) {
	svc := service(model.Service{Extras: model.Extras{Weights: "10.1.0.1=3,web-0=5,web-1=7"}})
	list := frontends(&svc, []string{"10.1.0.1 host:web-0", "10.1.0.2 host:web-1", "10.1.0.3"}).Frontends[0].Backends
	if len(list) != 3 || list[0].Weight != 3 || list[1].Weight != 7 || list[2].Weight != 1 {
		t.Errorf("backends: %+v", list)
	}
}

// The health check counts what the Service can serve: no slice of a headless Service
// and no family that it has no address of.
func TestHealthCheckCountsOwnSlices(t *testing.T) {
	svc := service(model.Service{ExternalLocal: true, HealthCheckNodePort: 32000, LoadBalancerIPs: addrs("5.6.7.8")})
	list := sliceSet(svc.Key, svc.Ports, []string{"10.1.0.1@n1", "fd01::1@n1", "fd01::2@n1", "--", "10.1.0.2@n1", "10.1.0.3@n1"})
	list[len(list)-1].Headless = true
	if got := health(policy.Frontends(policy.Inputs{Service: &svc, Slices: list, Node: policy.Self{Name: "n1"}}).Health); got != "32000:1" {
		t.Errorf("health check %s", got)
	}
}

// A Node that does not yet say its addresses opens NodePorts nowhere, and one without pod CIDRs tells no pod.
func TestViewOfAnEmptyNode(t *testing.T) {
	empty := &model.Node{Name: "n1"}
	v := policy.View(policy.ViewInputs{Node: empty, Host: host, NodePortPrimary: true, Mode: policy.NodeCIDR})
	want := policy.View(policy.ViewInputs{Host: host, NodePortPrimary: true, Mode: policy.NodeCIDR})
	if len(v.NodePortAddrs)+len(v.HealthAddrs) > 0 {
		t.Errorf("node port addresses %v, health check addresses %v, want none", v.NodePortAddrs, v.HealthAddrs)
	}
	if v.Local.Mode != want.Local.Mode {
		t.Errorf("local detector: %v, want %v", v.Local, want.Local)
	}
}

// Port 0 is no port.
func TestPortRangeFromZero(t *testing.T) {
	svc := service(ranged("0-99", model.Service{}))
	if res := policy.Frontends(policy.Inputs{Service: &svc}); len(res.Frontends) != 1 {
		t.Errorf("%d Frontends", len(res.Frontends))
	}
}

// InternalLocal holds the ClusterIP only: by its other addresses a Service reaches
// endpoints on other nodes, and those that a range does not use are named one by one.
func TestOtherAddressesOfInternalLocal(t *testing.T) {
	runAll(t, []decision{
		{name: "external IP", svc: model.Service{InternalLocal: true, ExternalIPs: addrs("1.2.3.4")}, eps: []string{"10.1.0.1@n2"}, flags: "internal",
			want: []string{"ClusterIP 10.96.0.1:80/TCP drop | others 10.1.0.1:8080(serving)", "ExternalIP 1.2.3.4:80/TCP forward 10.1.0.1:8080 | masquerade"}},
		{name: "load balancer", svc: model.Service{InternalLocal: true, LoadBalancerIPs: addrs("1.2.3.4")}, eps: []string{"10.1.0.1@n2"}, flags: "internal",
			want: []string{"ClusterIP 10.96.0.1:80/TCP drop | others 10.1.0.1:8080(serving)", "LoadBalancer 1.2.3.4:80/TCP forward 10.1.0.1:8080 | masquerade"}},
		{name: "range", svc: ranged("90-99", model.Service{}), eps: []string{"10.1.0.1", "10.1.0.2 unready", "10.1.0.3 unready"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | others 10.1.0.2:8080 10.1.0.3:8080",
				"ClusterIP 10.96.0.1:90-99/TCP forward 10.1.0.1:0 | others 10.1.0.2:0 10.1.0.3:0"}},
	})
}

// Services that contest an address: one that is gone has lost nothing, and whose
// ClusterIP an address is can be asked.
func TestServicesOfAnAddress(t *testing.T) {
	table := policy.NewServices()
	for _, name := range []string{"s1", "s2"} {
		svc := service(external(name, 1, "1.2.3.4"))
		table.Update(svc.Key, &svc)
		if owner, is := table.ClusterIPOf(svc.ClusterIPs[0]); !is || owner != svc.Key {
			t.Errorf("%s has the ClusterIP %v, and it is said to be of %s", name, svc.ClusterIPs, owner)
		}
		if owner, is := table.ClusterIPOf(netip.MustParseAddr("1.2.3.4")); is {
			t.Errorf("an external IP is said to be the ClusterIP of %s", owner)
		}
	}
	if res := table.Decide(model.ServiceKey{Namespace: "default", Name: "gone"}, nil); len(res.Frontends)+len(res.Problems) != 0 {
		t.Errorf("a Service that is gone: %+v", res)
	}
}

// Many endpoints come out in the order of their addresses, in whatever order they
// came and wherever the addresses differ.
func TestManyBackendsOfBothFamiliesAreInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for name, format := range map[string]func(i uint32) netip.Addr{
		"IPv4, everywhere": func(uint32) netip.Addr {
			return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 1<<30+r.Uint32()>>2)))
		},
		"IPv6, two bytes": func(i uint32) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)}) },
		"IPv6, four bytes": func(i uint32) netip.Addr {
			return netip.AddrFrom16([16]byte{0xfd, 5: byte(i), 7: byte(i * 7), 14: byte(i >> 8), 15: byte(i)})
		},
		"IPv6, everywhere": func(uint32) netip.Addr {
			return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 0xfd<<56+r.Uint64()>>8), r.Uint64())))
		},
	} {
		var eps []string
		for i := range uint32(300) {
			eps = append(eps, format(i).String())
		}
		r.Shuffle(len(eps), func(i, j int) { eps[i], eps[j] = eps[j], eps[i] })
		svc := service(model.Service{ClusterIPs: addrs("10.96.0.1", "fd00::1")})
		for _, f := range frontends(&svc, eps).Frontends {
			inOrder := slices.IsSortedFunc(f.Backends, func(a, b model.Backend) int { return a.Addr.Compare(b.Addr) })
			if f.Verdict == model.Forward && (len(f.Backends) < 295 || !inOrder) {
				t.Errorf("%s: %d backends, in order: %t", name, len(f.Backends), inOrder)
			}
		}
	}
}
