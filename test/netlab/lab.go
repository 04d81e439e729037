package netlab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// maxLabs bounds the number of concurrent labs of one process.
const maxLabs = 64

// Config configures a Lab.
type Config struct {
	// PodsPerNode is the number of pods on each node; 0 means 3.
	PodsPerNode int
}

// Lab is a running lab. It is safe for concurrent use after New has returned.
type Lab struct {
	home  netns.NsHandle
	hosts map[string]*Host
	names []string
	wire  *Host

	stop context.CancelFunc
	echo sync.WaitGroup
	mu   sync.Mutex
	open []func() error // listeners of the echo servers
}

// New builds a lab and starts its echo servers. It needs root (or a user namespace with CAP_NET_ADMIN and CAP_SYS_ADMIN).
func New(ctx context.Context, cfg Config) (*Lab, error) {
	if cfg.PodsPerNode == 0 {
		cfg.PodsPerNode = 3
	}
	Sweep()
	runtime.LockOSThread() // netns.Get uses the thread's id, and without the lock that thread may end before the read
	home, err := netns.Get()
	runtime.UnlockOSThread()
	if err != nil {
		return nil, fmt.Errorf("open own namespace: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Lab{home: home, hosts: map[string]*Host{}, stop: cancel}
	if err := l.build(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("build lab: %w", err), l.Close())
	}
	if err := l.serve(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start echo servers: %w", err), l.Close())
	}
	if err := l.settle(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for links: %w", err), l.Close())
	}
	return l, nil
}

// claim creates the first namespace. Its name is unique among the labs of one process.
func (l *Lab) claim() (prefix string, err error) {
	for n := 1; n <= maxLabs; n++ {
		prefix = fmt.Sprintf("fl%d-%d-", os.Getpid(), n)
		if l.wire, err = newHost(l.home, prefix, "wire"); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return prefix, err
}

func (l *Lab) build(cfg Config) error {
	prefix, err := l.claim()
	if err != nil {
		return err
	}
	bridge, err := l.addBridge()
	if err != nil {
		return err
	}
	for _, h := range []struct {
		name string
		last int
	}{{"node-a", 2}, {"node-b", 3}, {"client", 9}, {"client2", 10}} {
		if err := l.addOutside(prefix, h.name, wireAddrs(h.last), bridge); err != nil {
			return err
		}
	}
	for i, node := range []string{"node-a", "node-b"} {
		for p := 1; p <= cfg.PodsPerNode; p++ {
			if err := l.addPod(prefix, l.hosts[node], i+1, p); err != nil {
				return err
			}
		}
	}
	return l.addRoutes()
}

// addBridge creates the outside network. The bridge has addresses (the nodes' default gateway) but does not forward. So a packet that no Service
// claims is dropped there, as it would be on the way to a real gateway, and no packet can leave the lab.
func (l *Lab) addBridge() (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	snoop := false // IPv6 neighbour discovery is multicast: flood it
	if err := l.wire.links.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snoop}); err != nil {
		return nil, fmt.Errorf("add bridge: %w", err)
	}
	bridge, err := l.wire.up("br0")
	if err != nil {
		return nil, err
	}
	for i, a := range wireGateway.each() {
		if err := l.wire.addAddr(bridge, onWire(a)); err != nil {
			return nil, err
		}
		hole := &netlink.Route{Dst: ipNet(defaultDest[i]), Type: unix.RTN_BLACKHOLE} // without it IPv6 answers "no route"
		if err := l.wire.links.RouteAdd(hole); err != nil {
			return nil, fmt.Errorf("add blackhole %s on the wire: %w", defaultDest[i], err)
		}
	}
	return bridge, nil
}

func onWire(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(a, 24)
	}
	return netip.PrefixFrom(a, 64)
}

// addOutside adds a host on the outside network: a node or a client.
func (l *Lab) addOutside(prefix, name string, addrs Addrs, bridge netlink.Link) error {
	h, err := newHost(l.home, prefix, name)
	if err != nil {
		return err
	}
	h.Addrs = addrs
	l.add(h)
	port, eth0, err := veth(l.wire, name, h)
	if err != nil {
		return err
	}
	if err := l.wire.links.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("attach %s to the bridge: %w", name, err)
	}
	for _, a := range addrs.each() {
		if err := h.addAddr(eth0, onWire(a)); err != nil {
			return err
		}
	}
	return nil
}

// addPod adds a pod in the same way as the ptp CNI plug-in: with its own link to the node, whose end has the gateway's address.
func (l *Lab) addPod(prefix string, node *Host, nodeNumber, number int) error {
	letter := node.Name[len("node-"):]
	h, err := newHost(l.home, prefix, fmt.Sprintf("pod-%s%d", letter, number))
	if err != nil {
		return err
	}
	h.Node, h.Addrs = node.Name, podAddrs(nodeNumber, 10+number)
	l.add(h)
	port, eth0, err := veth(node, fmt.Sprintf("veth-%s%d", letter, number), h)
	if err != nil {
		return err
	}
	gateway := podAddrs(nodeNumber, 1)
	for i, a := range h.Addrs.each() {
		gw := gateway.each()[i]
		if err := errors.Join(
			node.addAddr(port, single(gw)), node.addRoute(port, single(a), netip.Addr{}),
			h.addAddr(eth0, single(a)), h.addRoute(eth0, single(gw), netip.Addr{}), h.addRoute(eth0, defaultDest[i], gw),
		); err != nil {
			return err
		}
	}
	return nil
}

// addRoutes enables forwarding on the nodes and adds routes: from each node to the other's pods, and from clients to Service addresses through
// node-a, the node under test.
func (l *Lab) addRoutes() error {
	a, b := l.hosts["node-a"], l.hosts["node-b"]
	for _, n := range []*Host{a, b} {
		if err := n.forward(); err != nil {
			return fmt.Errorf("turn on forwarding in %s: %w", n.Name, err)
		}
	}
	for _, r := range []struct {
		host *Host
		dst  []netip.Prefix
		via  Addrs
	}{
		{a, podPrefixes(2), b.Addrs}, {b, podPrefixes(1), a.Addrs},
		{a, defaultDest, wireGateway}, {b, defaultDest, wireGateway},
		{l.hosts["client"], podPrefixes(2), b.Addrs}, {l.hosts["client2"], podPrefixes(2), b.Addrs},
		{l.hosts["client"], defaultDest, a.Addrs}, {l.hosts["client2"], defaultDest, a.Addrs},
	} {
		eth0, err := r.host.links.LinkByName("eth0")
		if err != nil {
			return err
		}
		for i, dst := range r.dst {
			if err := r.host.addRoute(eth0, dst, r.via.each()[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) add(h *Host) {
	l.hosts[h.Name] = h
	l.names = append(l.names, h.Name)
}

// Host returns the named host.
func (l *Lab) Host(name string) (*Host, error) {
	h, ok := l.hosts[name]
	if !ok {
		return nil, fmt.Errorf("find host %q: the lab has %v", name, l.names)
	}
	return h, nil
}

// Node returns node-a, where the agent under test runs.
func (l *Lab) Node() *Host { return l.hosts["node-a"] }

// Client returns the first client outside the cluster.
func (l *Lab) Client() *Host { return l.hosts["client"] }

// Hosts returns the names of the hosts, in the order in which they were built.
func (l *Lab) Hosts() []string { return slices.Clone(l.names) }

// Close stops the echo servers and removes every namespace. Processes started with Host.Start must have ended. Close may be called twice.
func (l *Lab) Close() error {
	l.stop()
	l.mu.Lock()
	var errs []error
	for _, c := range l.open {
		errs = append(errs, c())
	}
	l.open = nil
	l.mu.Unlock()
	l.echo.Wait()
	for _, h := range l.hosts {
		h.close()
	}
	if l.wire != nil {
		l.wire.close()
	}
	l.hosts, l.wire = map[string]*Host{}, nil
	if l.home.IsOpen() {
		errs = append(errs, l.home.Close())
	}
	return errors.Join(errs...)
}
