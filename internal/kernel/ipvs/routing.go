package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The routing policy for ports of addresses that are not on the device: packets with a mark are looked up in RouteTable, before the
// table main and after the table local. The table has a local route for each such address and no others. So a lookup of a packet's
// source, which net.ipv4.conf.*.src_valid_mark makes the kernel do with the same mark, continues in the table main.
const (
	RouteTable    = 1251
	rulePriority  = 251
	routeProtocol = 250 // rtm_protocol of the agent's routes; fra_protocol of its rules
)

// Routing is the set of rules and routes that deliver marked packets to this network namespace.
type Routing interface {
	// Rule returns the mark of a family's rule, 0 without a rule. SetRule replaces it; 0 removes it.
	Rule(ctx context.Context, six bool) (mark uint32, err error)
	SetRule(ctx context.Context, six bool, mark uint32) error
	// Routes returns the addresses of the table's local routes, of both families.
	Routes(ctx context.Context) ([]netip.Addr, error)
	// AddRoute and RemoveRoute are idempotent.
	AddRoute(ctx context.Context, a netip.Addr) error
	RemoveRoute(ctx context.Context, a netip.Addr) error
}

func netlinkFamily(six bool) int {
	if six {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// rules returns the agent's rules of one family. A kernel without the family has none.
func (l *Link) rules(six bool) (out []netlink.Rule, err error) {
	list, err := l.h.RuleList(netlinkFamily(six))
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list routing rules: %w", err)
	}
	for i := range list {
		if list[i].Table == RouteTable && list[i].Protocol == routeProtocol {
			out = append(out, list[i])
		}
	}
	return out, nil
}

// Rule implements Routing. If there are several rules, or one with unexpected fields, it returns a mark that no rule has, so that SetRule
// replaces them.
func (l *Link) Rule(_ context.Context, six bool) (uint32, error) {
	list, err := l.rules(six)
	switch {
	case err != nil || len(list) == 0:
		return 0, err
	case len(list) > 1 || list[0].Mask == nil || *list[0].Mask != list[0].Mark || list[0].Priority != rulePriority || list[0].Invert:
		return ^uint32(0), nil
	}
	return list[0].Mark, nil
}

// SetRule implements Routing.
func (l *Link) SetRule(_ context.Context, six bool, mark uint32) error {
	list, err := l.rules(six)
	if err != nil {
		return err
	}
	for i := range list {
		if err := l.h.RuleDel(&list[i]); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete the routing rule for table %d: %w", RouteTable, err)
		}
	}
	if mark == 0 {
		return nil
	}
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table, r.Protocol, r.Mark, r.Mask = netlinkFamily(six), rulePriority, RouteTable, routeProtocol, mark, &mark
	if err := l.h.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the routing rule for table %d: %w", RouteTable, err)
	}
	return nil
}

// route returns the local route of an address in the table, without the device, which only AddRoute needs.
func route(a netip.Addr) *netlink.Route {
	return &netlink.Route{Table: RouteTable, Type: unix.RTN_LOCAL, Protocol: routeProtocol, Scope: netlink.SCOPE_HOST, Dst: netlink.NewIPNet(a.AsSlice())}
}

// Routes implements Routing.
func (l *Link) Routes(context.Context) (out []netip.Addr, err error) {
	of := &netlink.Route{Table: RouteTable, Protocol: routeProtocol, Type: unix.RTN_LOCAL}
	list, err := l.h.RouteListFiltered(netlink.FAMILY_ALL, of, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
	if err != nil {
		return nil, fmt.Errorf("list the routes of table %d: %w", RouteTable, err)
	}
	for i := range list {
		if list[i].Dst == nil {
			continue
		}
		if a, ok := netip.AddrFromSlice(list[i].Dst.IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}

// AddRoute implements Routing.
func (l *Link) AddRoute(_ context.Context, a netip.Addr) error {
	lo, err := l.h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	r := route(a)
	r.LinkIndex = lo.Attrs().Index
	if err := l.h.RouteReplace(r); err != nil {
		return fmt.Errorf("add the local route %s to table %d: %w", a, RouteTable, err)
	}
	return nil
}

// RemoveRoute implements Routing.
func (l *Link) RemoveRoute(_ context.Context, a netip.Addr) error {
	if err := l.h.RouteDel(route(a)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete the local route %s of table %d: %w", a, RouteTable, err)
	}
	return nil
}
