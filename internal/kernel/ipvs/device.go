package ipvs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	kernel "github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Addresses is the device that holds Service addresses: only packets to an address of this
// node reach IPVS. While the device does not exist, all reads are empty. The methods must be called from one goroutine.
type Addresses interface {
	// HasDevice reports whether the device exists; MakeDevice creates it if it does not.
	HasDevice(ctx context.Context) (bool, error)
	MakeDevice(ctx context.Context) error
	// RemoveDevice deletes the device with all its addresses; a missing device is no error.
	RemoveDevice(ctx context.Context) error
	List(ctx context.Context) ([]netip.Addr, error)
	// Has reports whether the device has an address, without listing all of them.
	Has(ctx context.Context, a netip.Addr) (bool, error)
	// Add and Remove are idempotent. Add without a device returns ENODEV.
	Add(ctx context.Context, a netip.Addr) error
	Remove(ctx context.Context, a netip.Addr) error
	Routing
}

// Link is the Addresses of the real kernel, in one network namespace.
type Link struct {
	h   *netlink.Handle
	nl  *kernel.Conn // for bulk reads, with one buffer
	buf message
	had int // length of the last list, as a capacity hint
}

var _ Addresses = (*Link)(nil)

// OpenLink returns a Link in the network namespace of the calling thread.
func OpenLink() (*Link, error) { return openLink(kernel.Config{}) }

// OpenGentleLink is OpenLink for reads that are not urgent: it yields to other goroutines.
func OpenGentleLink() (*Link, error) { return openLink(kernel.Config{Wrap: kernel.Gently}) }

func openLink(cfg kernel.Config) (*Link, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket to the kernel's links: %w", err)
	}
	cfg.Protocol = kernel.Route
	nl, err := kernel.Open(cfg)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open a netlink socket to the kernel's addresses: %w", err)
	}
	return &Link{h: h, nl: nl}, nil
}

// Close closes the sockets.
func (l *Link) Close() {
	l.h.Close()
	_ = l.nl.Close() // no write can be lost
}

// HasDevice implements Addresses.
func (l *Link) HasDevice(context.Context) (bool, error) {
	dev, err := l.find()
	return dev != nil, err
}

func (l *Link) find() (netlink.Link, error) {
	dev, err := l.h.LinkByName(Device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", Device, err)
	}
	return dev, nil
}

// MakeDevice implements Addresses. The device stays down: its addresses are local to the node
// nevertheless, and the kernel does not announce them.
func (l *Link) MakeDevice(context.Context) error {
	err := l.h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: Device, MTU: 1500}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create %s: %w", Device, err)
	}
	return nil
}

// RemoveDevice implements Addresses.
func (l *Link) RemoveDevice(context.Context) error {
	dev, err := l.find()
	if dev == nil || err != nil {
		return err
	}
	if err := l.h.LinkDel(dev); err != nil {
		return fmt.Errorf("remove %s: %w", Device, err)
	}
	return nil
}

// List implements Addresses.
func (l *Link) List(context.Context) ([]netip.Addr, error) {
	dev, err := l.find()
	if dev == nil || err != nil {
		return nil, err
	}
	out, err := l.addresses(uint32(dev.Attrs().Index))
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", Device, err)
	}
	return out, nil
}

// Has implements Addresses. The kernel has no lookup of one address of a device, but one of the route to it.
// If the route uses another device, which may have the same address, Has lists all addresses.
func (l *Link) Has(ctx context.Context, a netip.Addr) (bool, error) {
	dev, err := l.find()
	if dev == nil || err != nil {
		return false, err
	}
	routes, err := l.h.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Type == unix.RTN_LOCAL && r.LinkIndex == dev.Attrs().Index && r.Dst != nil && r.Dst.IP.Equal(a.AsSlice())
	}) {
		return true, nil
	}
	list, err := l.List(ctx)
	return slices.Contains(list, a), err
}

func host(a netip.Addr) *netlink.Addr {
	bits := netip.PrefixFrom(a, a.BitLen())
	out, _ := netlink.ParseAddr(bits.String()) // cannot fail for a valid address
	if a.Is6() {
		out.Flags = unix.IFA_F_NODAD // no duplicate address detection, which would delay the address
		// A deprecated address (RFC 6724, rule 3): packets that this node sends, or masquerades, by a device without an IPv6 address
		// have one of the node's own addresses as their source, and not a Service's that matches the destination better.
		out.ValidLft, out.PreferedLft = math.MaxUint32, 0
	}
	return out
}

// Add implements Addresses.
func (l *Link) Add(_ context.Context, a netip.Addr) error {
	dev, err := l.find()
	if err == nil && dev == nil {
		err = unix.ENODEV
	}
	if err == nil {
		err = l.h.AddrAdd(dev, host(a))
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add %s to %s: %w", a, Device, err)
	}
	return nil
}

// Remove implements Addresses.
func (l *Link) Remove(_ context.Context, a netip.Addr) error {
	dev, err := l.find()
	if dev == nil || err != nil {
		return err
	}
	err = l.h.AddrDel(dev, host(a))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		err = l.removeOther(dev, a)
	}
	if err != nil {
		return fmt.Errorf("remove %s from %s: %w", a, Device, err)
	}
	return nil
}

// removeOther removes an address that another program added, with a prefix length or a peer. The kernel deletes such an address
// only if the request contains them.
func (l *Link) removeOther(dev netlink.Link, a netip.Addr) error {
	fam := netlink.FAMILY_V4
	if a.Is6() {
		fam = netlink.FAMILY_V6
	}
	list, err := l.h.AddrList(dev, fam)
	if err != nil {
		return err
	}
	for i := range list {
		if !list[i].IP.Equal(a.AsSlice()) {
			continue
		}
		if err := l.h.AddrDel(dev, &list[i]); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return err
		}
	}
	return nil
}
