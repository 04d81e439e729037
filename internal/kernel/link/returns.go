package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What Returns writes: rules of this priority, behind the one for local addresses, that lead
// to this table, which takes everything in.
const (
	returnPriority = 250
	returnTable    = 1250
)

// Returns lead what servers answer to this network namespace, although it is addressed to
// somebody else: a rule of routing for each server, protocol, and a range of the clients'
// ports. It is for sockets that speak in their clients' name (IP_TRANSPARENT). Rules by
// ports are Linux 4.17's. All but List need CAP_NET_ADMIN.
type Returns struct {
	lo          int
	first, last uint16 // the clients' ports
}

// Server is where answers come from.
type Server struct {
	At       netip.AddrPort
	Protocol uint8 // IPPROTO_TCP or IPPROTO_UDP
}

// OpenReturns finds lo in the network namespace of the calling thread. Every method must be
// called in that namespace. Answers to ports from first to last are led here.
func OpenReturns(first, last uint16) (*Returns, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find lo: %w", err)
	}
	return &Returns{lo: lo.Attrs().Index, first: first, last: last}, nil
}

func (r *Returns) rule(s Server) *netlink.Rule {
	out := netlink.NewRule()
	out.Priority, out.Table, out.Protocol, out.IPProto = returnPriority, returnTable, localProtocol, int(s.Protocol)
	out.Src = netlink.NewIPNet(s.At.Addr().AsSlice())
	out.Sport = netlink.NewRulePortRange(s.At.Port(), s.At.Port())
	out.Dport = netlink.NewRulePortRange(r.first, r.last)
	return out
}

// all is the only route of the table.
func (r *Returns) all(v6 bool) *netlink.Route {
	dst := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if v6 {
		dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{LinkIndex: r.lo, Table: returnTable, Type: unix.RTN_LOCAL, Protocol: localProtocol, Scope: netlink.SCOPE_HOST, Dst: dst}
}

// Add leads a server's answers here; what is so already stays.
func (r *Returns) Add(s Server) error {
	if err := netlink.RouteReplace(r.all(s.At.Addr().Is6())); err != nil {
		return fmt.Errorf("add the route for answers of %s: %w", s.At, err)
	}
	if err := netlink.RuleAdd(r.rule(s)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the rule for answers of %s: %w", s.At, err)
	}
	return nil
}

// Delete lets a server's answers go where they are addressed to; a rule that is not there
// is no error. With the last rule of a family its route goes, too.
func (r *Returns) Delete(s Server) error {
	if err := netlink.RuleDel(r.rule(s)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the rule for answers of %s: %w", s.At, err)
	}
	family := unix.AF_INET
	if s.At.Addr().Is6() {
		family = unix.AF_INET6
	}
	left, err := r.rules(family)
	if err != nil || len(left) > 0 {
		return err
	}
	if err := netlink.RouteDel(r.all(s.At.Addr().Is6())); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete the route for answers: %w", err)
	}
	return nil
}

// List returns the servers whose answers are led here: who has the rule, but not the route
// behind it, is none of them.
func (r *Returns) List() (out []Server, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := r.rules(family)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			continue
		}
		of := &netlink.Route{Table: returnTable, Protocol: localProtocol, Type: unix.RTN_LOCAL}
		routes, err := netlink.RouteListFiltered(family, of, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
		if err != nil {
			return nil, fmt.Errorf("list the routes for answers: %w", err)
		}
		if len(routes) > 0 {
			out = append(out, list...)
		}
	}
	return out, nil
}

// Remove takes away everything of ours, whatever ports it is for, and says how many rules
// there were.
func (r *Returns) Remove() (n int, err error) {
	var problems []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := ours(family, returnTable)
		problems = append(problems, err)
		for i := range list {
			problems = append(problems, netlink.RuleDel(&list[i]))
		}
		n += len(list)
		if err := netlink.RouteDel(r.all(family == unix.AF_INET6)); err != nil && !errors.Is(err, unix.ESRCH) {
			problems = append(problems, fmt.Errorf("delete the route for answers: %w", err))
		}
	}
	return n, errors.Join(problems...)
}

// Watch calls changed when it has begun, and then after each of our rules that goes, no
// matter who deletes it, until ctx ends. Locals.Watch tells of the route.
func (r *Returns) Watch(ctx context.Context, changed func()) error { return watchRules(ctx, changed) }

// watchRules calls changed when it has begun, and after each rule of the agent's that goes, of Returns and of Ports, until ctx ends.
func watchRules(ctx context.Context, changed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return fmt.Errorf("subscribe to changes of the rules of routing: %w", err)
	}
	defer context.AfterFunc(ctx, s.Close)()
	changed()
	for {
		list, _, err := s.Receive()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.Close()
			return errors.Join(ErrLost, err)
		}
		if slices.ContainsFunc(list, goes) {
			changed()
		}
	}
}

// goes reports whether a message is of a rule of ours that has gone.
func goes(m syscall.NetlinkMessage) bool {
	if m.Header.Type != unix.RTM_DELRULE || len(m.Data) < unix.SizeofRtMsg {
		return false
	}
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	return err == nil && slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == nl.FRA_PROTOCOL && len(a.Value) == 1 && a.Value[0] == localProtocol
	})
}

// rules returns the servers of one family that have a rule for just our ports.
func (r *Returns) rules(family int) (out []Server, err error) {
	list, err := ours(family, returnTable)
	for i := range list {
		l := &list[i]
		if l.Src == nil || l.Sport == nil || l.Dport == nil || l.Dport.Start != r.first || l.Dport.End != r.last {
			continue
		}
		if a, ok := netip.AddrFromSlice(l.Src.IP); ok {
			out = append(out, Server{netip.AddrPortFrom(a.Unmap(), l.Sport.Start), uint8(l.IPProto)})
		}
	}
	return out, err
}

func ours(family, table int) (out []netlink.Rule, err error) {
	list, err := netlink.RuleList(family)
	if err != nil {
		return nil, fmt.Errorf("list rules of routing: %w", err)
	}
	for i := range list {
		if list[i].Protocol == localProtocol && list[i].Table == table {
			out = append(out, list[i])
		}
	}
	return out, nil
}
