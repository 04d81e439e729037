package dns

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fairlead/fairlead/internal/model"
)

// locals is what the Store knows of this node: its own addresses, its pods'
// ranges, and the namespaces of those of its pods that are endpoints. It is
// guarded by Store.mu.
type locals struct {
	node         string
	podInterface string
	configured   []netip.Prefix // pod ranges of the configuration

	podCIDRs []netip.Prefix // of this node's Node object
	behind   []netip.Prefix // on-link ranges of the pods' interface
	own      map[netip.Addr]struct{}
	// pods counts, for each address, how many endpoints of a namespace are on this
	// node. Only this node's are stored: only its pods ask here.
	pods map[netip.Addr]map[string]int
	// changes counts the changes of the addresses above, for callers that cache what
	// they have derived from them.
	changes *atomic.Uint32
}

func newLocals(c *StoreConfig) locals {
	return locals{node: c.NodeName, podInterface: c.PodInterface, configured: c.PodRanges,
		changes: new(atomic.Uint32),
		own:     map[netip.Addr]struct{}{}, pods: map[netip.Addr]map[string]int{}}
}

func (l *locals) setNode(name string, n *model.Node) {
	defer l.changes.Add(1)
	switch {
	case name != l.node:
	case n == nil:
		l.podCIDRs = nil
	default:
		l.podCIDRs = n.PodCIDRs
	}
}

func (l *locals) setHost(h *model.HostAddrs) {
	defer l.changes.Add(1)
	l.own, l.behind = map[netip.Addr]struct{}{}, nil
	for _, a := range h.Addrs {
		l.own[a.Prefix.Addr()] = struct{}{}
		if l.podInterface != "" && strings.HasPrefix(a.Link, l.podInterface) {
			l.behind = append(l.behind, a.Prefix.Masked())
		}
	}
}

func (l *locals) podRanges() []netip.Prefix {
	return slices.Concat(l.configured, l.podCIDRs, l.behind)
}

// isPod reports whether an address is one of this node's pods. The configured ranges
// are usually those of the whole cluster, which contain other nodes' pods, too. They
// count only for families of which this node's Node has no range, and where the network
// plugin assigns addresses outside the Node's ranges: then an endpoint that is on
// this node shows it.
func (l *locals) isPod(a netip.Addr) bool {
	if within(l.podCIDRs, a) || within(l.behind, a) {
		return true
	}
	if !within(l.configured, a) {
		return false
	}
	return !slices.ContainsFunc(l.podCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }) || l.strayPods(a.Is4())
}

// strayPods reports whether an endpoint of this node and of a family is in the
// configured ranges, and in none of the Node's own.
func (l *locals) strayPods(v4 bool) bool {
	for a := range l.pods {
		if _, own := l.own[a]; a.Is4() == v4 && !own && within(l.configured, a) && !within(l.podCIDRs, a) {
			return true
		}
	}
	return false
}

func (l *locals) replace(old, sl *model.Slice) {
	l.each(old, func(a netip.Addr, namespace string) {
		if n := l.pods[a]; n[namespace] > 1 {
			n[namespace]--
		} else if delete(n, namespace); len(n) == 0 {
			delete(l.pods, a)
		}
	})
	l.each(sl, func(a netip.Addr, namespace string) {
		if l.pods[a] == nil {
			l.pods[a] = map[string]int{}
		}
		l.pods[a][namespace]++
	})
}

func (l *locals) each(sl *model.Slice, f func(netip.Addr, string)) {
	if sl == nil || l.node == "" {
		return
	}
	for i := range sl.Endpoints {
		if e := &sl.Endpoints[i]; e.Node == l.node {
			f(e.Addr, sl.Key.Namespace)
		}
	}
}

// isOwn reports whether an address is this node's.
func (s *Store) isOwn(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.locals.own[a]
	return ok
}

// isPod reports whether an address is one of this node's pods.
func (s *Store) isPod(a netip.Addr) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.locals.isPod(a)
}
