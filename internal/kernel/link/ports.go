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

// The rules that Ports writes have this priority, after that of local addresses, and refer to this table.
const (
	portPriority = 252
	portTable    = 1252
	refuseTable  = 1253 // the rules that refuse name this table but do not use it: the library does not report a rule's action
)

// Ports deliver packets to an address and port to this network namespace although the address is not local to it: a routing rule for each
// protocol, address and port refers to a table in which every address is local. Other packets to the address follow the other
// routes. Rules by ports need Linux 4.17. All methods but List need CAP_NET_ADMIN.
//
// The route of IPv4 has 127.0.0.1 as its preferred source, from which programs of this namespace then connect: the kernel sends nothing from
// an address that is in the table local neither as an address nor as a route.
//
// A port may be refused instead: senders receive ICMP host unreachable. Over IPv4 the kernel sends no reset and no port unreachable from a
// foreign address.
type Ports struct{ lo int }

// Port is one taken port.
type Port struct {
	Server
	Refuse bool
}

// OpenPorts looks up lo in the network namespace of the calling thread. Every method must be called in that namespace.
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

// all returns the only route of the table in a family.
func (p *Ports) all(six bool) *netlink.Route {
	out := &netlink.Route{LinkIndex: p.lo, Table: portTable, Type: unix.RTN_LOCAL, Protocol: localProtocol, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Src: net.IPv4(127, 0, 0, 1)}
	if six {
		out.Dst, out.Src = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}, nil
	}
	return out
}

// Add delivers packets to an address and port to this namespace, or refuses them. It is idempotent, and replaces a rule of the other kind.
func (p *Ports) Add(port Port) error {
	if err := netlink.RouteReplace(p.all(port.At.Addr().Is6())); err != nil {
		return fmt.Errorf("add the route for packets to %s: %w", port.At, err)
	}
	if err := netlink.RuleAdd(portRule(port)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the routing rule for packets to %s: %w", port.At, err)
	}
	return p.delete(Port{port.Server, !port.Refuse})
}

// Delete removes the rules of an address and port; a missing rule is no error. Only Remove deletes the route of the table: without
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

// List returns the addresses and ports that have a rule; delivered ones only if their family also has the route.
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

// portRules returns the rules of both kinds.
func portRules(family int) ([]netlink.Rule, error) {
	deliver, err := ours(family, portTable)
	if err != nil {
		return nil, err
	}
	refuse, err := ours(family, refuseTable)
	return append(deliver, refuse...), err
}

// Remove deletes all rules and routes, and returns the number of rules.
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

// Watch calls changed once it is subscribed, and then after each deletion of an agent's rule, until ctx ends. Locals.Watch reports the route.
func (p *Ports) Watch(ctx context.Context, changed func()) error { return watchRules(ctx, changed) }
