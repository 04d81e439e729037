package addressplan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestAddr(t *testing.T) {
	for from, want := range map[string]string{
		"10.96.0.10": "127.96.0.10", "10.239.1.2": "127.239.1.2", "10.240.0.10": "127.1.0.10", "10.250.0.10": "127.11.0.10",
		"10.0.0.10": "127.239.0.10", "198.51.100.1": "127.51.100.1", "10.255.255.255": "127.16.255.255",
		"fd00:10:96::a": "127.240.0.10", "fd00::f:1234": "127.255.18.52", "fd00:10:96::ff0:1": "127.240.0.1",
	} {
		if got := (Plan{}).Addr(addr(from)); got != addr(want) {
			t.Errorf("%s becomes %s, want %s", from, got, want)
		}
		if got := (Plan{Own: true}).Addr(addr(from)); got != addr(from) {
			t.Errorf("with own addresses %s becomes %s", from, got)
		}
	}
}

// What other programs listen on is never used, whatever the Service's address.
func TestAddrStaysOffTheUsualLoopback(t *testing.T) {
	usual, loopback := netip.MustParsePrefix("127.0.0.0/16"), netip.MustParsePrefix("127.0.0.0/8")
	for b := range 256 {
		for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{10, byte(b), 0, 1}), netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(b), 15: 1})} {
			if got := (Plan{}).Addr(a); usual.Contains(got) || !loopback.Contains(got) {
				t.Errorf("%s becomes %s", a, got)
			}
		}
	}
}

func TestPort(t *testing.T) {
	for _, c := range []struct{ first, port, want uint16 }{
		{0, 80, 80}, {1, 80, 80}, {1024, 80, 10080}, {1024, 1023, 11023}, {1024, 1024, 1024}, {80, 80, 80}, {65535, 60000, 60000},
	} {
		if got := (Plan{FirstPort: c.first}).Port(c.port); got != c.want {
			t.Errorf("port %d, where %d is the first that may be bound, becomes %d, want %d", c.port, c.first, got, c.want)
		}
	}
}

// TestAsked: a socket maps back to the Service that is answered there, and another port of it to none.
func TestAsked(t *testing.T) {
	svc := &model.Service{ClusterIPs: []netip.Addr{addr("10.96.0.10"), addr("fd00:10:96::a")}, ExternalIPs: []netip.Addr{addr("198.51.100.1")},
		LoadBalancerIPs: []netip.Addr{addr("203.0.113.7")}, Ports: []model.ServicePort{{Port: 8080}, {Port: 80}}}
	for here, want := range map[string]string{
		"127.96.0.10:10080": "10.96.0.10:80", "127.96.0.10:8080": "10.96.0.10:8080", "127.240.0.10:8080": "[fd00:10:96::a]:8080",
		"127.51.100.1:10080": "198.51.100.1:80", "127.239.113.7:8080": "203.0.113.7:8080", "127.96.0.10:80": "", "127.96.0.11:8080": "", "10.96.0.10:8080": "",
	} {
		got, is := Plan{FirstPort: 1024}.Asked(netip.MustParseAddrPort(here), svc)
		if is != (want != "") || is && got != netip.MustParseAddrPort(want) {
			t.Errorf("%s answers for %s, %t, want %q", here, got, is, want)
		}
	}
}

func TestSockets(t *testing.T) {
	view := &model.NodeView{NodePortAddrs: []netip.Addr{addr("127.0.0.1"), addr("192.0.2.1"), addr("2001:db8::1")}}
	vip := &model.Frontend{Kind: model.ClusterIP, Key: model.FrontendKey{Family: model.IPv4, Addr: addr("10.96.0.10"), Port: 80}}
	vip6 := &model.Frontend{Kind: model.ClusterIP, Key: model.FrontendKey{Family: model.IPv6, Addr: addr("fd00::a"), Port: 80}}
	node4 := &model.Frontend{Kind: model.NodePort, Key: model.FrontendKey{Family: model.IPv4, Port: 30080}}
	node6 := &model.Frontend{Kind: model.NodePort, Key: model.FrontendKey{Family: model.IPv6, Port: 30080}}
	own, mapped := Plan{Own: true}, Plan{FirstPort: 1024}
	for _, c := range []struct {
		name string
		plan Plan
		f    *model.Frontend
		want []string
	}{
		{"own", own, vip, []string{"10.96.0.10:80"}},
		{"own IPv6", own, vip6, []string{"[fd00::a]:80"}},
		{"own node port", own, node4, []string{"127.0.0.1:30080", "192.0.2.1:30080"}},
		{"own node port IPv6", own, node6, []string{"[::1]:30080", "[2001:db8::1]:30080"}},
		{"mapped", mapped, vip, []string{"127.96.0.10:10080"}},
		{"mapped IPv6", mapped, vip6, []string{"127.240.0.10:10080"}},
		{"mapped node port", mapped, node4, []string{"127.0.0.1:30080"}},
		{"mapped node port IPv6", mapped, node6, []string{"[::1]:30080"}},
	} {
		var got []string
		for _, at := range c.plan.Sockets(c.f, view) {
			got = append(got, at.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Names must resolve to where Services are answered, and the source's values stay unchanged.
func TestService(t *testing.T) {
	s := &model.Service{Proxied: true, ClusterIPs: []netip.Addr{addr("fd00::a"), addr("10.96.0.10")},
		ExternalIPs: []netip.Addr{{}, addr("198.51.100.1")}, Ports: []model.ServicePort{{Port: 80}, {Port: 8080}}}
	got := Plan{FirstPort: 1024}.Service(s)
	if !slices.Equal(got.ClusterIPs, []netip.Addr{addr("127.96.0.10")}) || !slices.Equal(got.ExternalIPs, []netip.Addr{addr("127.51.100.1")}) {
		t.Errorf("addresses %v, %v", got.ClusterIPs, got.ExternalIPs)
	}
	if got.Ports[0].Port != 10080 || got.Ports[1].Port != 8080 || s.Ports[0].Port != 80 || s.ClusterIPs[0] != addr("fd00::a") {
		t.Errorf("ports %v, the source's own %v", got.Ports, s.Ports)
	}
	if only6 := (Plan{}).Service(&model.Service{Proxied: true, ClusterIPs: []netip.Addr{addr("fd00::a")}}); only6.ClusterIPs[0] != addr("127.240.0.10") {
		t.Errorf("a Service of IPv6 only is at %v", only6.ClusterIPs)
	}
	for _, same := range []*model.Service{nil, {Headless: true, ClusterIPs: []netip.Addr{addr("10.96.0.10")}}} {
		if (Plan{}).Service(same) != same {
			t.Errorf("%v was changed", same)
		}
	}
	if (Plan{Own: true}).Service(s) != s {
		t.Error("with own addresses nothing is to be changed")
	}
}
