package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// veth joins two hosts with a pair of devices: the one in inner is always eth0, the one in outer has the given name. It sets both up.
func veth(outer *Host, name string, inner *Host) (outerLink, innerLink netlink.Link, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(inner.handle))}
	if err := outer.links.LinkAdd(pair); err != nil {
		return nil, nil, fmt.Errorf("add link %s between %s and %s: %w", name, outer.Name, inner.Name, err)
	}
	if outerLink, err = outer.up(name); err != nil {
		return nil, nil, err
	}
	innerLink, err = inner.up("eth0")
	return outerLink, innerLink, err
}

func (h *Host) up(name string) (netlink.Link, error) {
	link, err := h.links.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s in %s: %w", name, h.Name, err)
	}
	if err := h.links.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("set link %s up in %s: %w", name, h.Name, err)
	}
	return link, nil
}

func (h *Host) addAddr(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := h.links.AddrAdd(link, a); err != nil {
		return fmt.Errorf("add address %s to %s in %s: %w", p, link.Attrs().Name, h.Name, err)
	}
	return nil
}

// addRoute adds a route to dst through gw, or directly on the link if gw is not valid.
func (h *Host) addRoute(link netlink.Link, dst netip.Prefix, gw netip.Addr) error {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(dst)}
	if gw.IsValid() {
		r.Gw = gw.AsSlice()
	} else if dst.Addr().Is4() {
		r.Scope = netlink.SCOPE_LINK
	}
	if err := h.links.RouteAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add route %s via %s in %s: %w", dst, gw, h.Name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
