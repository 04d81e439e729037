package fastpath

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// family is one half of the test.
type family struct {
	name                            string
	client, nodeOut, nodeIn, server netip.Prefix
	service                         netip.AddrPort
	v6                              bool
	forwarding, everything          string
}

func families() []family {
	p := netip.MustParsePrefix
	return []family{
		{name: "IPv4", client: p("10.2.0.2/24"), nodeOut: p("10.2.0.1/24"), nodeIn: p("10.1.0.254/24"), server: p("10.1.0.1/24"),
			service: netip.MustParseAddrPort("10.96.0.1:80"), forwarding: "/proc/sys/net/ipv4/ip_forward", everything: "0.0.0.0/0"},
		{name: "IPv6", v6: true, client: p("fd02::2/64"), nodeOut: p("fd02::1/64"), nodeIn: p("fd01::fe/64"), server: p("fd01::1/64"),
			service: netip.MustParseAddrPort("[fd96::1]:80"), forwarding: "/proc/sys/net/ipv6/conf/all/forwarding", everything: "::/0"},
	}
}

const serverPort = 8080

// lab is the network.
type lab struct{ client, node, server namespace }

func newLab() (l lab, err error) {
	for _, n := range []*namespace{&l.client, &l.node, &l.server} {
		if *n, err = newNamespace(); err != nil {
			l.close()
			return l, err
		}
	}
	if err := l.wire(); err != nil {
		l.close()
		return l, &UntestableError{err}
	}
	return l, nil
}

func (l *lab) close() {
	l.client.close()
	l.node.close()
	l.server.close()
}

// wire links the namespaces and sets their addresses and routes.
func (l *lab) wire() error {
	if err := l.node.do(func() error {
		for name, to := range map[string]namespace{"c": l.client, "s": l.server} {
			pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name + "0"}, PeerName: name + "1", PeerNamespace: netlink.NsFd(to.file.Fd())}
			if err := netlink.LinkAdd(pair); err != nil {
				return fmt.Errorf("create a pair of links: %w", err)
			}
		}
		for _, f := range families() {
			if err := os.WriteFile(f.forwarding, []byte("1"), 0); err != nil && !os.IsNotExist(err) {
				return err
			}
			if err := address("c0", f.nodeOut, f.v6); err != nil {
				return err
			}
			if err := address("s0", f.nodeIn, f.v6); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	end := func(n namespace, link string, of func(family) (own, gateway netip.Prefix)) error {
		return n.do(func() error {
			for _, f := range families() {
				own, gateway := of(f)
				if err := address(link, own, f.v6); err != nil {
					return err
				}
				_, all, _ := net.ParseCIDR(f.everything) // a constant
				if err := netlink.RouteAdd(&netlink.Route{Dst: all, Gw: gateway.Addr().AsSlice()}); err != nil {
					return fmt.Errorf("add a route: %w", err)
				}
			}
			return nil
		})
	}
	if err := end(l.client, "c1", func(f family) (netip.Prefix, netip.Prefix) { return f.client, f.nodeOut }); err != nil {
		return err
	}
	return end(l.server, "s1", func(f family) (netip.Prefix, netip.Prefix) { return f.server, f.nodeIn })
}

// address adds an address to a link and has it up.
func address(link string, p netip.Prefix, v6 bool) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if v6 {
		a.Flags = 2 // IFA_F_NODAD: it is used at once
	}
	if err := netlink.AddrAdd(l, a); err != nil {
		return fmt.Errorf("add %s to %s: %w", p, link, err)
	}
	return nil
}
