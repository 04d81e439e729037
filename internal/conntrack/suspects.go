package conntrack

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// end is where a flow goes after translation.
type end struct {
	protocol model.Protocol
	addr     netip.AddrPort
}

// suspects are flows that may be stale since the last pass.
type suspects struct {
	ends map[end]struct{}               // flows to these, ...
	lost map[model.FrontendKey]struct{} // ... which these have lost
	keys map[model.FrontendKey]struct{} // flows for these, wherever they go
	// addrs are NodePort addresses that came or went: flows to these.
	addrs map[netip.Addr]struct{}
	all   bool
}

func newSuspects() suspects {
	return suspects{ends: map[end]struct{}{}, lost: map[model.FrontendKey]struct{}{}, keys: map[model.FrontendKey]struct{}{}, addrs: map[netip.Addr]struct{}{}}
}

func (s *suspects) none() bool { return !s.all && s.count() == 0 }

func (s *suspects) count() int { return len(s.ends) + len(s.keys) + len(s.addrs) }

// add merges the suspects of other into s.
func (s *suspects) add(other *suspects) {
	maps.Copy(s.ends, other.ends)
	maps.Copy(s.lost, other.lost)
	maps.Copy(s.keys, other.keys)
	maps.Copy(s.addrs, other.addrs)
	s.all = s.all || other.all
}

// filters returns the dumps that show all suspects. A dump costs the walk over the
// whole table, and ten times that if it brings all of it (measured: 150 000
// flows, 20 ms against 200 ms of CPU): so a few exact ones by endpoint (a pod
// that went) or by key (a Service that went), else one for each port, else all
// of a protocol.
func (c *Cleaner) filters(what *suspects) []conntrack.Filter {
	if what.all {
		set := filterSet{}
		c.eachKey(func(k model.FrontendKey) { set[keyProtocol(k)] = struct{}{} })
		return set.sorted()
	}
	byEnd, byKey := filterSet{}, filterSet{}
	for e := range what.ends {
		byEnd[conntrack.Filter{Family: KernelFamily(model.FamilyOf(e.addr.Addr())), Protocol: uint8(e.protocol),
			ReplySrc: e.addr.Addr(), ReplyPort: e.addr.Port()}] = struct{}{}
	}
	for k := range what.lost {
		byKey[keyFilter(k)] = struct{}{}
	}
	for f := range c.addrFilters(what.addrs) {
		byEnd[f], byKey[f] = struct{}{}, struct{}{}
	}
	for k := range what.keys {
		byEnd[keyFilter(k)], byKey[keyFilter(k)] = struct{}{}, struct{}{}
	}
	best := byEnd
	if len(byKey) < len(byEnd) {
		best = byKey
	}
	for _, less := range []func(conntrack.Filter) conntrack.Filter{exact, anyAddr, anyPort} {
		if set := best.each(less); len(set) <= c.p.MaxFiltered {
			return set.sorted()
		}
	}
	return best.each(anyPort).sorted()
}

// eachKey calls f with every key to which a flow may go or may have gone, some twice.
func (c *Cleaner) eachKey(f func(model.FrontendKey)) {
	for _, list := range [...]endpoints{c.known, c.maybe} {
		for k := range list {
			f(k)
		}
	}
	for k := range c.lost {
		f(k)
	}
}

// addrFilters returns one dump for each address and protocol that a NodePort has or
// had. Addresses of a node change rarely, so that this may walk all keys.
func (c *Cleaner) addrFilters(addrs map[netip.Addr]struct{}) filterSet {
	protocols, out := filterSet{}, filterSet{}
	if len(addrs) == 0 {
		return out
	}
	c.eachKey(func(k model.FrontendKey) {
		if !k.Addr.IsValid() {
			protocols[keyProtocol(k)] = struct{}{}
		}
	})
	for a := range addrs {
		for p := range protocols {
			if p.Family == KernelFamily(model.FamilyOf(a)) {
				p.OrigDst = a
				out[p] = struct{}{}
			}
		}
	}
	return out
}

// The ways to make a filter wider, from not at all to most.
func exact(f conntrack.Filter) conntrack.Filter { return f }

func anyAddr(f conntrack.Filter) conntrack.Filter {
	f.OrigDst, f.ReplySrc = netip.Addr{}, netip.Addr{}
	return f
}

func anyPort(f conntrack.Filter) conntrack.Filter {
	return conntrack.Filter{Family: f.Family, Protocol: f.Protocol}
}

func keyFilter(k model.FrontendKey) conntrack.Filter {
	f := keyProtocol(k)
	f.OrigDst, f.OrigPort = k.Addr, k.Port // of a NodePort any address
	if k.Range() {
		f.OrigPort = 0
	}
	return f
}

func keyProtocol(k model.FrontendKey) conntrack.Filter {
	return conntrack.Filter{Family: KernelFamily(k.Family), Protocol: uint8(k.Protocol)}
}

func modelFamily(f conntrack.Family) model.Family {
	if f == conntrack.IPv4 {
		return model.IPv4
	}
	return model.IPv6
}

// KernelFamily is a family as the kernel's table counts it.
func KernelFamily(f model.Family) conntrack.Family {
	if f == model.IPv4 {
		return conntrack.IPv4
	}
	return conntrack.IPv6
}

type filterSet map[conntrack.Filter]struct{}

func (s filterSet) each(f func(conntrack.Filter) conntrack.Filter) filterSet {
	out := filterSet{}
	for x := range s {
		out[f(x)] = struct{}{}
	}
	return out
}

// sorted: what is done must not depend on map order.
func (s filterSet) sorted() []conntrack.Filter {
	return slices.SortedFunc(maps.Keys(s), func(a, b conntrack.Filter) int {
		for _, c := range []int{int(a.Family) - int(b.Family), int(a.Protocol) - int(b.Protocol),
			a.OrigDst.Compare(b.OrigDst), int(a.OrigPort) - int(b.OrigPort), a.ReplySrc.Compare(b.ReplySrc)} {
			if c != 0 {
				return c
			}
		}
		return int(a.ReplyPort) - int(b.ReplyPort)
	})
}
