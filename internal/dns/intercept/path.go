package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The question that proves that the server works must take the path of
// pods' queries: in by a device, through this host's firewall, to the
// server, and back out. A pair of devices does that: what is sent on askDevice
// arrives on podDevice as if a pod had sent it. Nothing else uses them.
const (
	podDevice = "fairlead-dns" // the end where the host receives
	askDevice = "fairlead-ask" // the end where the agent sends and listens
)

// asker returns the address that the question comes from: a link-local or unique local
// one chosen for this, on podDevice only.
func asker(vip netip.Addr) netip.Addr {
	if vip.Is4() {
		return netip.AddrFrom4([4]byte{169, 254, 115, 53})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0xfa, 2: 0x1d, 15: 53})
}

// askerMAC returns an address that no device has: the host's own IP stack must take no frame that is meant for the asker.
func askerMAC() net.HardwareAddr { return net.HardwareAddr{2, 0xfa, 0x1d, 0, 0, 53} }

// path is the pair of devices.
type path struct {
	pod net.HardwareAddr // of podDevice
	ask int              // index of askDevice
}

// openPath recreates the devices, with a route and a neighbour for each asker.
func openPath(vips []netip.Addr) (*path, error) {
	if err := removePath(); err != nil || len(vips) == 0 {
		return nil, err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: podDevice}, PeerName: askDevice}
	if err := netlink.LinkAdd(pair); err != nil {
		return nil, fmt.Errorf("create the devices %s and %s: %w", podDevice, askDevice, err)
	}
	p, err := setUp(vips)
	if err != nil {
		return nil, errors.Join(err, removePath())
	}
	return p, nil
}

func setUp(vips []netip.Addr) (*path, error) {
	var links [2]netlink.Link
	for i, name := range []string{podDevice, askDevice} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("find the device %s: %w", name, err)
		}
		links[i] = link
		// No link-local address: it would look like an address of the node's. A
		// kernel without IPv6 knows no such setting.
		_ = netlink.LinkSetIP6AddrGenMode(link, 1)
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("start the device %s: %w", name, err)
		}
	}
	pod, err := netlink.LinkByName(podDevice) // its address is known now
	if err != nil {
		return nil, fmt.Errorf("find the device %s: %w", podDevice, err)
	}
	for _, vip := range vips {
		if err := lead(pod, asker(vip)); err != nil {
			return nil, err
		}
	}
	return &path{pod: bytes.Clone(pod.Attrs().HardwareAddr), ask: links[1].Attrs().Index}, nil
}

// lead makes the host send packets for an asker out of podDevice.
func lead(pod netlink.Link, to netip.Addr) error {
	dst := netlink.NewIPNet(to.AsSlice())
	index := pod.Attrs().Index
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: index, Dst: dst, Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("add a route to %s on %s: %w", to, podDevice, err)
	}
	family := netlink.FAMILY_V6
	if to.Is4() {
		family = netlink.FAMILY_V4
	}
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT, IP: to.AsSlice(), HardwareAddr: askerMAC()}); err != nil {
		return fmt.Errorf("add a neighbour %s on %s: %w", to, podDevice, err)
	}
	return nil
}

// removePath removes the devices; routes and neighbours go with them.
func removePath() error {
	link, err := netlink.LinkByName(podDevice)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the device %s: %w", podDevice, err)
	}
	return nil
}

// there reports whether the devices are still those that were made.
func (p *path) there() bool {
	link, err := netlink.LinkByName(askDevice)
	return err == nil && link.Attrs().Index == p.ask
}
