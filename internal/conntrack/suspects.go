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
	all  bool
}

func newSuspects() suspects {
	return suspects{ends: map[end]struct{}{}, lost: map[model.FrontendKey]struct{}{}, keys: map[model.FrontendKey]struct{}{}}
}

func (s *suspects) none() bool { return !s.all && len(s.ends)+len(s.keys) == 0 }

// add takes back what another has.
func (s *suspects) add(other *suspects) {
	maps.Copy(s.ends, other.ends)
	maps.Copy(s.lost, other.lost)
	maps.Copy(s.keys, other.keys)
	s.all = s.all || other.all
}

// filters gives the dumps that show all suspects. A dump costs the walk over the
// whole table, and ten times that if it brings all of it (measured: 150 000
// flows, 20 ms against 200 ms of CPU): so a few exact ones by endpoint (a pod
// that went) or by key (a Service that went), else one for each port, else all
// of a protocol.
func (c *Cleaner) filters(what *suspects) []conntrack.Filter {
	if what.all {
		set := filterSet{}
		for k := range c.known {
			set[keyProtocol(k)] = struct{}{}
		}
		for k := range c.lost {
			set[keyProtocol(k)] = struct{}{}
		}
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
