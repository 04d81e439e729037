package intercept

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EnsureAddrs gives the loopback device every link-local IPv4 or unique-local
// IPv6 address of the list that no link has yet, so that --dns-address may name
// an address made up for this purpose, such as 169.254.20.10. Other addresses are
// the node's own business. It is idempotent; the address stays when the agent
// goes, as it answers nothing then.
func EnsureAddrs(list []netip.AddrPort) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("add DNS address: find lo: %w", err)
	}
	for _, ap := range list {
		a := ap.Addr()
		if !madeUp(a) {
			continue
		}
		flags := 0
		if !a.Is4() {
			flags = unix.IFA_F_NODAD
		}
		addr := &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice()), Flags: flags}
		if there, err := present(a); err != nil || there {
			if err != nil {
				return err
			}
			continue
		}
		if err := netlink.AddrAdd(lo, addr); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add DNS address %s to lo: %w", a, err)
		}
	}
	return nil
}

func madeUp(a netip.Addr) bool {
	if a.Is4() {
		return a.IsLinkLocalUnicast()
	}
	return a.IsPrivate()
}

func present(a netip.Addr) (bool, error) {
	family := netlink.FAMILY_V6
	if a.Is4() {
		family = netlink.FAMILY_V4
	}
	list, err := netlink.AddrList(nil, family)
	if err != nil {
		return false, fmt.Errorf("add DNS address %s: list addresses: %w", a, err)
	}
	for i := range list {
		if got, ok := netip.AddrFromSlice(list[i].IP); ok && got.Unmap() == a {
			return true, nil
		}
	}
	return false, nil
}
