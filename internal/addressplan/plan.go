package addressplan

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Plan defines where to listen. The zero Plan maps addresses and moves no port.
type Plan struct {
	Own       bool   // the Services' own addresses
	FirstPort uint16 // the lowest port that this process may bind; 0 and 1 mean any
}

// shift is what is added to a port that may not be bound.
const shift = 10_000

// Addr returns the address that stands for a Service's address.
func (p Plan) Addr(a netip.Addr) netip.Addr {
	if p.Own {
		return a
	}
	if a.Is6() {
		b := a.As16()
		return netip.AddrFrom4([4]byte{127, 240 + b[13]&15, b[14], b[15]})
	}
	b := a.As4()
	second := b[1]
	switch {
	case second == 0:
		second = 239
	case second >= 240:
		second -= 239
	}
	return netip.AddrFrom4([4]byte{127, second, b[2], b[3]})
}

// Port returns the port that stands for a Service's port.
func (p Plan) Port(n uint16) uint16 {
	if n < p.FirstPort && n <= 65535-shift {
		return n + shift
	}
	return n
}

// Sockets returns the addresses and ports on which a Frontend is answered, sorted.
func (p Plan) Sockets(f *model.Frontend, v *model.NodeView) []netip.AddrPort {
	port := p.Port(f.Key.Port)
	if f.Kind != model.NodePort {
		return []netip.AddrPort{netip.AddrPortFrom(p.Addr(f.Key.Addr), port)}
	}
	loopback := netip.IPv6Loopback()
	if f.Key.Family == model.IPv4 {
		loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	out := []netip.AddrPort{netip.AddrPortFrom(loopback, port)}
	if p.Own {
		for _, a := range v.NodePortAddrs {
			if model.FamilyOf(a) == f.Key.Family {
				out = append(out, netip.AddrPortFrom(a, port))
			}
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// Asked returns the address and port of a Service that is answered at a socket, and whether there is one. It does not
// cover NodePorts.
func (p Plan) Asked(here netip.AddrPort, svc *model.Service) (netip.AddrPort, bool) {
	for _, list := range [...][]netip.Addr{svc.ClusterIPs, svc.ExternalIPs, svc.LoadBalancerIPs} {
		for _, a := range list {
			if p.Addr(a) != here.Addr() {
				continue
			}
			for i := range svc.Ports {
				if n := svc.Ports[i].Port; p.Port(n) == here.Port() {
					return netip.AddrPortFrom(a, n), true
				}
			}
		}
	}
	return netip.AddrPort{}, false
}

// Service returns a Service as its clients on this node must see it: with the addresses
// and ports on which it is answered. If two addresses map to one family, the first stays.
func (p Plan) Service(s *model.Service) *model.Service {
	if s == nil || p.Own || !s.Proxied {
		return s
	}
	out := *s
	out.ClusterIPs = p.addrs(s.ClusterIPs)
	if len(out.ClusterIPs) > 1 {
		out.ClusterIPs = out.ClusterIPs[:1]
	}
	out.ExternalIPs, out.LoadBalancerIPs = p.addrs(s.ExternalIPs), p.addrs(s.LoadBalancerIPs)
	out.Ports = slices.Clone(s.Ports)
	for i := range out.Ports {
		out.Ports[i].Port = p.Port(out.Ports[i].Port)
	}
	return &out
}

// addrs maps a list, IPv4 first, so that the address that stays is that of the IPv4 endpoints.
func (p Plan) addrs(list []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, want4 := range []bool{true, false} {
		for _, a := range list {
			if a.IsValid() && a.Is4() == want4 {
				out = append(out, p.Addr(a))
			}
		}
	}
	return out
}
