package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is one namespace of a Lab: a client, a node or a pod.
type Host struct {
	// Name is the short name: client, client2, node-a, node-b, pod-a1 …
	Name string
	// NetNS is the name under /run/netns, for `ip netns exec`.
	NetNS string
	// Node is the name of a pod's node; empty for other hosts.
	Node  string
	Addrs Addrs

	home   netns.NsHandle
	handle netns.NsHandle
	links  *netlink.Handle
	sctp   sync.Map // netip.Addr to *sync.Mutex: see sctpFlow.ask
	ports  atomic.Uint32
}

// nextPort returns the source ports for a host's flows in sequence. A randomly chosen port could repeat an earlier one. The packets would then belong
// to the earlier flow and reach its endpoint, for as long as conntrack holds its entry.
func (h *Host) nextPort() uint16 {
	const first, last = 33000, 60999 // above NodePorts
	return first + uint16(h.ports.Add(1)%(last-first+1))
}

// dialUDP connects from the next free source port.
func (h *Host) dialUDP(ctx context.Context, address string) (conn net.Conn, err error) {
	for range 100 {
		from := net.Dialer{LocalAddr: &net.UDPAddr{Port: int(h.nextPort())}}
		if conn, err = from.DialContext(ctx, "udp", address); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return conn, err
}

// Do runs f on a thread that is inside the host's namespace. f must not start goroutines that need the namespace; the sockets that it opens stay
// usable on any thread.
func (h *Host) Do(f func() error) error {
	runtime.LockOSThread()
	if err := netns.Set(h.handle); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter namespace %s: %w", h.NetNS, err)
	}
	defer func() {
		// A thread that cannot return to its own namespace must not run other goroutines: it stays locked and ends with this goroutine.
		if netns.Set(h.home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// Dial connects from inside the namespace. The address must be a literal because the lab has no DNS.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := h.Do(func() (err error) {
		if network == "udp" {
			conn, err = h.dialUDP(ctx, address)
			return err
		}
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen opens a TCP listener inside the namespace.
func (h *Host) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	var lis net.Listener
	err := h.Do(func() (err error) {
		cfg := net.ListenConfig{}
		cfg.SetMultipathTCP(false) // plain sockets: MPTCP listeners fall back in a way that hides resets
		lis, err = cfg.Listen(ctx, "tcp", addr.String())
		return err
	})
	return lis, err
}

// ListenPacket opens a UDP socket inside the namespace.
func (h *Host) ListenPacket(ctx context.Context, addr netip.AddrPort) (*net.UDPConn, error) {
	var pc net.PacketConn
	err := h.Do(func() (err error) {
		pc, err = new(net.ListenConfig).ListenPacket(ctx, "udp", addr.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return pc.(*net.UDPConn), nil
}

// Sysctl writes /proc/sys/<path> inside the namespace.
func (h *Host) Sysctl(path, value string) error {
	return h.Do(func() error { return os.WriteFile("/proc/sys/"+path, []byte(value), 0o644) })
}

func newHost(home netns.NsHandle, prefix, name string) (*Host, error) {
	h := &Host{Name: name, NetNS: prefix + name, home: home}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread stays in the new namespace and must end with this goroutine.
		runtime.LockOSThread()
		var err error
		h.handle, err = netns.NewNamed(h.NetNS)
		done <- err
	}()
	if err := <-done; err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", h.NetNS, err)
	}
	var err error
	if h.links, err = netlink.NewHandleAt(h.handle); err != nil {
		h.close()
		return nil, fmt.Errorf("open netlink in %s: %w", h.NetNS, err)
	}
	return h, h.prepare()
}

// prepare configures a host before its first link exists: no duplicate address detection (it would delay every address by a second), no redirects, no
// reverse path filter, no rate limit on ICMP errors (with it, the seventh refusal in a row would be a timeout), and the loopback device up.
func (h *Host) prepare() error {
	for _, kv := range [][2]string{
		{"net/ipv4/conf/all/rp_filter", "0"}, {"net/ipv4/conf/default/rp_filter", "0"},
		{"net/ipv4/conf/all/send_redirects", "0"}, {"net/ipv4/conf/default/send_redirects", "0"},
		{"net/ipv4/conf/all/accept_redirects", "0"}, {"net/ipv4/conf/default/accept_redirects", "0"},
		{"net/ipv4/icmp_ratemask", "0"}, {"net/ipv6/icmp/ratelimit", "0"},
		{"net/ipv6/conf/all/accept_dad", "0"}, {"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/all/accept_ra", "0"}, {"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv6/conf/all/accept_redirects", "0"}, {"net/ipv6/conf/default/accept_redirects", "0"},
	} {
		if err := h.Sysctl(kv[0], kv[1]); err != nil {
			return fmt.Errorf("set sysctl %s in %s: %w", kv[0], h.NetNS, err)
		}
	}
	lo, err := h.links.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback in %s: %w", h.NetNS, err)
	}
	return h.links.LinkSetUp(lo)
}

// forward enables IP forwarding on the host.
func (h *Host) forward() error {
	if err := h.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	return h.Sysctl("net/ipv6/conf/all/forwarding", "1")
}

func (h *Host) close() {
	if h.links != nil {
		h.links.Close()
	}
	h.handle.Close()
	// An error means that another process removed it first, which has the same result.
	_ = netns.DeleteNamed(h.NetNS)
}
