package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// localProtocol marks the agent's routes (rtm_protocol), so that a restarted process
// recognizes them.
const localProtocol = 250

// Locals are addresses that are local to this network namespace although no link
// has them: routes of type local by lo (Linux calls it AnyIP). Unlike addresses on
// lo they carry a mark of their owner, in both families, and no program takes them for
// addresses of the node. All methods need CAP_NET_ADMIN, except List.
type Locals struct{ lo int }

// OpenLocals looks up lo in the network namespace of the calling thread. Every method must
// be called in that namespace.
func OpenLocals() (*Locals, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find lo: %w", err)
	}
	return &Locals{lo: lo.Attrs().Index}, nil
}

func (l *Locals) route(a netip.Addr) *netlink.Route {
	return &netlink.Route{LinkIndex: l.lo, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Protocol: localProtocol,
		Scope: netlink.SCOPE_HOST, Dst: netlink.NewIPNet(a.AsSlice())}
}

// Add makes an address local. It is idempotent.
func (l *Locals) Add(a netip.Addr) error {
	if err := netlink.RouteReplace(l.route(a)); err != nil {
		return fmt.Errorf("add local route %s: %w", a, err)
	}
	return nil
}

// Delete deletes the route of an address; a missing one is no error.
func (l *Locals) Delete(a netip.Addr) error {
	if err := netlink.RouteDel(l.route(a)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete local route %s: %w", a, err)
	}
	return nil
}

// List returns the addresses that are local by a route of the agent.
func (l *Locals) List() (out []netip.Addr, err error) {
	of := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: localProtocol, Type: unix.RTN_LOCAL}
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, of, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
	if err != nil {
		return nil, fmt.Errorf("list local routes: %w", err)
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

// Has reports whether an address is local by a route of the agent. It looks up that route only.
func (l *Locals) Has(a netip.Addr) (bool, error) {
	list, err := netlink.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the local route %s: %w", a, err)
	}
	return slices.ContainsFunc(list, func(r netlink.Route) bool {
		if r.Dst == nil || r.Type != unix.RTN_LOCAL || r.Protocol != localProtocol {
			return false
		}
		to, _ := netip.AddrFromSlice(r.Dst.IP) // an invalid address is not equal to a
		ones, bits := r.Dst.Mask.Size()
		return ones == bits && to.Unmap() == a
	}), nil
}

// Watch calls changed once it is subscribed, and then after each deletion of an agent's route, by
// any program, until ctx ends. It may be called on any thread of the namespace.
func (l *Locals) Watch(ctx context.Context, changed func()) error {
	lost := make(chan error, 1) // size 1: keeps the first error
	updates := make(chan netlink.RouteUpdate)
	err := netlink.RouteSubscribeWithOptions(updates, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: func(err error) {
		select {
		case lost <- err:
		default:
		}
	}})
	if err != nil {
		return fmt.Errorf("subscribe to route changes: %w", err)
	}
	changed()
	for u := range updates {
		if u.Type == unix.RTM_DELROUTE && u.Protocol == localProtocol {
			changed()
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	select {
	case err = <-lost:
	default:
	}
	return errors.Join(ErrLost, err)
}
