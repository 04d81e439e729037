package link

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrLost reports that the subscription has ended and changes are missed: the caller
// must close the Conn and open another one.
var ErrLost = errors.New("subscription to address changes is lost")

// timeout bounds the wait for the kernel's answer to a list request.
const timeout = 10 * time.Second

// Addr is one address of one link.
type Addr struct {
	Prefix netip.Prefix // address with its on-link length
	Link   string       // device name
}

// Conn lists the addresses and subscribes to their changes. See Open.
type Conn struct {
	handle  *netlink.Handle
	changed chan struct{}
	stop    chan struct{}
	done    sync.WaitGroup
	close   sync.Once

	mu  sync.Mutex
	err error
}

// Open subscribes to address and link changes in the network namespace of the
// calling thread.
func Open() (*Conn, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	if err := handle.SetSocketTimeout(timeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	c := &Conn{
		handle:  handle,
		changed: make(chan struct{}, 1), // a notify channel of size 1
		stop:    make(chan struct{}),
	}
	addrs := make(chan netlink.AddrUpdate)
	err = netlink.AddrSubscribeWithOptions(addrs, c.stop, netlink.AddrSubscribeOptions{ErrorCallback: c.fail})
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("subscribe to address changes: %w", err)
	}
	// The kernel sends no address notification when a link is renamed, so subscribe to links too.
	links := make(chan netlink.LinkUpdate)
	err = netlink.LinkSubscribeWithOptions(links, c.stop, netlink.LinkSubscribeOptions{ErrorCallback: c.fail})
	if err != nil {
		c.done.Go(func() { forward(c, addrs) })
		c.Close()
		return nil, fmt.Errorf("subscribe to link changes: %w", err)
	}
	c.done.Go(func() { forward(c, addrs) })
	c.done.Go(func() { forward(c, links) })
	return c, nil
}

// forward converts notifications into values of the notify channel until updates is
// closed, which the library does when the socket fails or stop is closed.
func forward[T any](c *Conn, updates <-chan T) {
	for range updates {
		c.ring()
	}
	c.fail(nil)
}

func (c *Conn) ring() {
	select {
	case c.changed <- struct{}{}:
	default: // a notification is pending already
	}
}

// fail records why the subscription ended. ENOBUFS, with which the kernel reports that
// the reader was too slow and messages were lost, is handled here too.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil || err != nil {
		c.err = ErrLost
		if err != nil {
			c.err = fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	c.mu.Unlock()
	c.ring()
}

// Changed returns a channel that receives a value when addresses may have changed, or when the subscription
// is lost, which the next Addrs reports.
func (c *Conn) Changed() <-chan struct{} { return c.changed }

// Addrs returns the addresses of all links, sorted by address, then link. An
// address that another host has, as found by duplicate address detection
// (RFC 4862), is left out. The error is ErrLost if no further changes of the list
// will be reported.
func (c *Conn) Addrs() ([]Addr, error) {
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	links, err := c.handle.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	list, err := c.handle.AddrList(nil, netlink.FAMILY_ALL)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		c.ring() // the list changed during the dump: read again
	} else if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := make([]Addr, 0, len(list))
	for i := range list {
		if a, ok := addrOf(&list[i], names); ok {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Addr) int {
		if n := a.Prefix.Compare(b.Prefix); n != 0 {
			return n
		}
		return strings.Compare(a.Link, b.Link)
	})
	return slices.Compact(out), nil
}

// addrOf converts one address; not ok if its link is unknown or the address is unusable.
func addrOf(a *netlink.Addr, names map[int]string) (Addr, bool) {
	name, known := names[a.LinkIndex]
	if !known || a.IPNet == nil || a.Flags&unix.IFA_F_DADFAILED != 0 {
		return Addr{}, false
	}
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return Addr{}, false
	}
	bits, _ := a.Mask.Size()
	return Addr{Prefix: netip.PrefixFrom(ip.Unmap(), bits), Link: name}, true
}

// Close ends the subscription. It may be called more than once.
func (c *Conn) Close() {
	c.close.Do(func() {
		close(c.stop)
		c.done.Wait()
		c.handle.Close()
	})
}
