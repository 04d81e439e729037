package intercept

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EnsureAddrs adds to the loopback device every link-local IPv4 or unique-local
// IPv6 address of the list that no link has yet, so that --dns-address may name
// an address chosen for this purpose, such as 169.254.20.10. It leaves other addresses
// to the node's administrator. It is idempotent. The address stays when the agent
// ends, because nothing answers at it then; RemoveAddrs removes it.
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
		label := ""
		if a.Is4() { // IPv6 addresses have none
			label = addrLabel
		}
		addr := &netlink.Addr{Label: label, IPNet: netlink.NewIPNet(a.AsSlice()), Flags: flags}
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

// addrLabel marks the addresses that the agent has added, so that a clean-up in another
// process recognises them.
const addrLabel = "lo:fairlead"

// RemoveAddrs removes from the loopback device the IPv4 addresses that EnsureAddrs has
// added, and returns them. IPv6 addresses carry no mark and stay.
func RemoveAddrs() ([]netip.Addr, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("remove DNS addresses: find lo: %w", err)
	}
	list, err := netlink.AddrList(lo, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("remove DNS addresses: list addresses: %w", err)
	}
	var out []netip.Addr
	for i := range list {
		if list[i].Label != addrLabel {
			continue
		}
		if err := netlink.AddrDel(lo, &list[i]); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return out, fmt.Errorf("remove DNS address %s: %w", list[i].IPNet, err)
		}
		if a, ok := netip.AddrFromSlice(list[i].IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
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
