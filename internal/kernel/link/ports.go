package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What Ports writes: rules of this priority, behind the one for local addresses, that lead to this table.
const (
	portPriority = 252
	portTable    = 1252
	refuseTable  = 1253 // which the rules that refuse name and do not use: the library does not report a rule's action
)

// Ports deliver packets to an address and port to this network namespace although the address is not one of its own: a routing rule for each
// protocol, address and port leads to a table in which everything is local. All else that is sent to the address goes where the other routes
// lead. Rules by ports are Linux 4.17's. All but List need CAP_NET_ADMIN.
//
// The route of IPv4 has 127.0.0.1 as its preferred source, which programs of this namespace then connect from: the kernel sends nothing from
// an address that is in the table local neither as an address nor as a route.
//
// A port may be refused instead: senders get ICMP's host unreachable. Over IPv4 the kernel sends no reset and no port unreachable from a
// foreign address.
type Ports struct{ lo int }

// Port is one that is taken.
type Port struct {
	Server
	Refuse bool
}

// OpenPorts finds lo in the network namespace of the calling thread. Every method must be called in that namespace.
func OpenPorts() (*Ports, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find lo: %w", err)
	}
	return &Ports{lo: lo.Attrs().Index}, nil
}

func portRule(p Port) *netlink.Rule {
	out := netlink.NewRule()
	out.Priority, out.Table, out.Protocol, out.IPProto = portPriority, portTable, localProtocol, int(p.Protocol)
	if p.Refuse {
		out.Table, out.Type = refuseTable, unix.RTN_UNREACHABLE
	}
	out.Dst = netlink.NewIPNet(p.At.Addr().AsSlice())
	out.Dport = netlink.NewRulePortRange(p.At.Port(), p.At.Port())
	return out
}

// all is the only route of the table in a family.
func (p *Ports) all(six bool) *netlink.Route {
	out := &netlink.Route{LinkIndex: p.lo, Table: portTable, Type: unix.RTN_LOCAL, Protocol: localProtocol, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Src: net.IPv4(127, 0, 0, 1)}
	if six {
		out.Dst, out.Src = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}, nil
	}
	return out
}

// Add delivers or refuses the packets to an address and port here; what is so already stays, and a rule of the other sort goes.
func (p *Ports) Add(port Port) error {
	if err := netlink.RouteReplace(p.all(port.At.Addr().Is6())); err != nil {
		return fmt.Errorf("add the route for packets to %s: %w", port.At, err)
	}
	if err := netlink.RuleAdd(portRule(port)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the routing rule for packets to %s: %w", port.At, err)
	}
	return p.delete(Port{port.Server, !port.Refuse})
}

// Delete removes the rules of an address and port; ones that are not there are no error. The route of the table goes with Remove only: without
// a rule it has no effect.
func (p *Ports) Delete(s Server) error {
	return errors.Join(p.delete(Port{s, false}), p.delete(Port{s, true}))
}

func (p *Ports) delete(port Port) error {
	if err := netlink.RuleDel(portRule(port)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the routing rule for packets to %s: %w", port.At, err)
	}
	return nil
}

// List returns the addresses and ports that have a rule; those that are delivered here only if their family has the route too.
func (p *Ports) List() (out []Port, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := portRules(family)
		if err != nil || len(rules) == 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		of := &netlink.Route{Table: portTable, Protocol: localProtocol, Type: unix.RTN_LOCAL}
		routes, err := netlink.RouteListFiltered(family, of, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
		if err != nil {
			return nil, fmt.Errorf("list the routes for taken ports: %w", err)
		}
		for i := range rules {
			r := &rules[i]
			refuse := r.Table == refuseTable
			if len(routes) == 0 && !refuse || r.Dst == nil || r.Dport == nil || r.Dport.Start != r.Dport.End {
				continue
			}
			if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
				out = append(out, Port{Server{netip.AddrPortFrom(a.Unmap(), r.Dport.Start), uint8(r.IPProto)}, refuse})
			}
		}
	}
	return out, nil
}

// portRules lists the rules of both sorts.
func portRules(family int) ([]netlink.Rule, error) {
	deliver, err := ours(family, portTable)
	if err != nil {
		return nil, err
	}
	refuse, err := ours(family, refuseTable)
	return append(deliver, refuse...), err
}

// Remove removes all rules and routes, and returns how many rules there were.
func (p *Ports) Remove() (n int, err error) {
	var problems []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := portRules(family)
		problems = append(problems, err)
		for i := range list {
			problems = append(problems, netlink.RuleDel(&list[i]))
		}
		n += len(list)
		if err := netlink.RouteDel(p.all(family == unix.AF_INET6)); err != nil && !errors.Is(err, unix.ESRCH) {
			problems = append(problems, fmt.Errorf("delete the route for taken ports: %w", err))
		}
	}
	return n, errors.Join(problems...)
}

// Watch calls changed when it has begun, and then after each of the agent's rules that goes, until ctx ends. Locals.Watch reports the route.
func (p *Ports) Watch(ctx context.Context, changed func()) error { return watchRules(ctx, changed) }
