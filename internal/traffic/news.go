package traffic

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// What is decided comes as messages, which no lock holds up: who decides is the engine, and must not wait for a scrape or for an
// event that is being counted. They are taken in by whoever counts or reads next, or by a goroutine that does nothing else.

// news is one message. Later ones lead to earlier ones.
type news struct {
	before *news
	svc    model.ServiceKey
	list   []told
	nodes  map[netip.Addr]struct{} // not nil: it is about these
}

// told is what the Counter needs of a Frontend.
type told struct {
	key       model.FrontendKey
	name      ServicePort
	endpoints []netip.AddrPort // whatever they get; those of a range of ports have no port
}

// Decided says which Frontends a Service has now: none if it is gone. What its connections do after that is not counted.
// It waits for nothing, and keeps nothing of the list.
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

// NodePorts says on which addresses NodePorts answer. It waits for nothing.
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

// News rings when there is something for Settle to take in.
func (c *Counter) News() <-chan struct{} { return c.bell }

// Settle takes in what was decided. Whoever counts or reads does so, too: it is for a goroutine that sees to it that messages do
// not pile up where nothing happens.
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
