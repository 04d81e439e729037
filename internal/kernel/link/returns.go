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

// The rules that Returns writes have this priority, after that of local addresses, and refer
// to this table, in which every address is local.
const (
	returnPriority = 250
	returnTable    = 1250
)

// Returns deliver the answers of servers to this network namespace, although they are addressed to
// a client: a routing rule for each server, protocol, and a range of the clients'
// ports. It is for sockets that use their clients' addresses (IP_TRANSPARENT). Rules by
// ports need Linux 4.17. All methods but List need CAP_NET_ADMIN.
type Returns struct {
	lo          int
	first, last uint16 // the clients' ports
}

// Server is the source of answers.
type Server struct {
	At       netip.AddrPort
	Protocol uint8 // IPPROTO_TCP or IPPROTO_UDP
}

// OpenReturns looks up lo in the network namespace of the calling thread. Every method must be
// called in that namespace. It delivers answers to ports from first to last.
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

// all returns the only route of the table in a family.
func (r *Returns) all(v6 bool) *netlink.Route {
	dst := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if v6 {
		dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{LinkIndex: r.lo, Table: returnTable, Type: unix.RTN_LOCAL, Protocol: localProtocol, Scope: netlink.SCOPE_HOST, Dst: dst}
}

// Add delivers a server's answers to this namespace. It is idempotent.
func (r *Returns) Add(s Server) error {
	if err := netlink.RouteReplace(r.all(s.At.Addr().Is6())); err != nil {
		return fmt.Errorf("add the route for answers of %s: %w", s.At, err)
	}
	if err := netlink.RuleAdd(r.rule(s)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the rule for answers of %s: %w", s.At, err)
	}
	return nil
}

// Delete lets a server's answers follow the other routes again; a missing rule
// is no error. With the last rule of a family it deletes the family's route, too.
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

// List returns the servers whose answers are delivered here: those of a family whose
// route exists, too.
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

// Remove deletes all rules and routes of the agent's Returns, for any range of ports, and returns the
// number of rules.
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

// Watch calls changed once it is subscribed, and then after each deletion of an agent's rule, by
// any program, until ctx ends. Locals.Watch reports the route.
func (r *Returns) Watch(ctx context.Context, changed func()) error { return watchRules(ctx, changed) }

// watchRules calls changed once it is subscribed, and after each deletion of an agent's rule, of Returns or of Ports, until ctx ends.
func watchRules(ctx context.Context, changed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return fmt.Errorf("subscribe to routing rule changes: %w", err)
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

// goes reports whether a message is the deletion of an agent's rule.
func goes(m syscall.NetlinkMessage) bool {
	if m.Header.Type != unix.RTM_DELRULE || len(m.Data) < unix.SizeofRtMsg {
		return false
	}
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	return err == nil && slices.ContainsFunc(attrs, func(a syscall.NetlinkRouteAttr) bool {
		return a.Attr.Type == nl.FRA_PROTOCOL && len(a.Value) == 1 && a.Value[0] == localProtocol
	})
}

// rules returns the servers of one family that have a rule for exactly this range of ports.
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
		return nil, fmt.Errorf("list routing rules: %w", err)
	}
	for i := range list {
		if list[i].Protocol == localProtocol && list[i].Table == table {
			out = append(out, list[i])
		}
	}
	return out, nil
}
