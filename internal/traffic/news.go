package traffic

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Updates are queued as messages without a lock: the engine sends them, and must not wait for a scrape or for an event that is
// being counted. The next caller that counts or reads handles them, or a goroutine that calls Settle.

// news is one update. Each points to the one before.
type news struct {
	before *news
	svc    model.ServiceKey
	list   []told
	nodes  map[netip.Addr]struct{} // not nil: the update sets these
}

// told is the part of a Frontend that the Counter needs.
type told struct {
	key       model.FrontendKey
	name      ServicePort
	endpoints []netip.AddrPort // whatever their weight; those of a range of ports have no port
}

// Decided updates the Frontends that a Service owns: none if it is gone. What its connections do after that is not counted. It does
// not block, and does not keep the list.
func (c *Counter) Decided(svc model.ServiceKey, list []model.Frontend) {
	n := &news{svc: svc, list: make([]told, 0, len(list))}
	for i := range list {
		f := &list[i]
		t := told{key: f.Key, name: ServicePort{f.Service, f.Port}, endpoints: make([]netip.AddrPort, 0, len(f.Backends)+len(f.LocalBackends)+len(f.Others))}
		for _, some := range [...][]model.Backend{f.Backends, f.LocalBackends} {
			for j := range some {
				t.endpoints = append(t.endpoints, netip.AddrPortFrom(some[j].Addr, some[j].Port))
			}
		}
		for j := range f.Others {
			t.endpoints = append(t.endpoints, f.Others[j].Addr)
		}
		n.list = append(n.list, t)
	}
	c.tell(n)
}

// NodePorts updates the addresses on which NodePorts are served. It does not block.
func (c *Counter) NodePorts(list []netip.Addr) {
	n := &news{nodes: make(map[netip.Addr]struct{}, len(list))}
	for _, a := range list {
		n.nodes[a] = struct{}{}
	}
	c.tell(n)
}

func (c *Counter) tell(n *news) {
	for n.before = c.newest.Load(); !c.newest.CompareAndSwap(n.before, n); {
		n.before = c.newest.Load()
	}
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// News returns a channel that is notified when there are pending updates for Settle.
func (c *Counter) News() <-chan struct{} { return c.bell }

// Settle handles the pending updates. Counting and reading handle them too. It is for a goroutine that keeps updates from piling up
// when there is no traffic.
func (c *Counter) Settle() {
	if c.newest.Load() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counting.Lock()
	defer c.counting.Unlock()
	var list []*news
	for n := c.newest.Swap(nil); n != nil; n = n.before {
		list = append(list, n)
	}
	for _, n := range slices.Backward(list) {
		if n.nodes != nil {
			c.nodes = n.nodes
		} else {
			c.decided(n.svc, n.list)
		}
	}
}
