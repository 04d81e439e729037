package conntrack

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// maxLost bounds the memory for lost endpoints while the table cannot be read: the
// number of keys, and the number of endpoints of each.
const maxLost = 65_536

func (c *Cleaner) concerns(k model.FrontendKey) bool {
	if len(c.p.Families) > 0 && !slices.Contains(c.p.Families, k.Family) {
		return false
	}
	return k.Protocol != model.TCP || c.p.ResetGone
}

// stay returns the endpoints that existing flows of a Frontend may keep. Both lists
// count: a flow does not show whether its client is a pod, which may use Backends, or
// an external client under policy Local. A datagram to an endpoint that does not serve
// is lost, so UDP flows to it are stale. A connection (SCTP, TCP) may finish as long as
// the endpoint exists.
func stay(f *model.Frontend) []netip.AddrPort {
	backends := func(list []model.Backend) []netip.AddrPort {
		out := make([]netip.AddrPort, len(list))
		for i := range list {
			out[i] = list[i].AddrPort()
		}
		return out
	}
	others := make([]netip.AddrPort, 0, len(f.Others))
	for i := range f.Others {
		if f.Others[i].Serving || f.Key.Protocol != model.UDP {
			others = append(others, f.Others[i].Addr)
		}
	}
	return union(union(backends(f.Backends), backends(f.LocalBackends)), others) // each is sorted
}

// learn takes the inbox and records as suspects the flows that the updates may have
// made stale.
func (c *Cleaner) learn() {
	c.mu.Lock()
	in := c.in
	c.in = inbox{}
	c.mu.Unlock()
	if in.nodePorts != nil {
		c.nodePorts = in.nodePorts
	}
	for a := range in.moved {
		c.moved[a] = c.rounds
		c.suspects.addrs[a] = struct{}{}
	}
	for k, w := range in.words {
		if w.changed {
			c.learnKey(k, &w)
		}
		if len(w.maybe) > 0 {
			c.maybe[k] = union(c.maybe[k], w.maybe)
			c.ranges.add(k)
		}
	}
	if in.sweep {
		c.inSync, c.suspects.all = true, true
	}
	if c.suspects.count() > c.p.MaxSuspects {
		c.suspects.all = true
	}
	if c.suspects.all {
		c.suspects = newSuspects()
		c.suspects.all = true
	}
}

// learnKey handles the updates of one key and records which flows they make stale.
func (c *Cleaner) learnKey(k model.FrontendKey, w *word) {
	stayed := c.known[k]
	before := union(union(stayed, c.maybe[k]), w.earlier)
	lost := slices.DeleteFunc(slices.Clone(before), func(a netip.AddrPort) bool { return contains(w.stay, a) })
	delete(c.maybe, k)
	c.ranges.add(k)
	if w.gone {
		delete(c.known, k)
	} else {
		c.known[k] = w.stay
		// Flows that began while no Service held the key are never translated (#48370). Until
		// the first endpoint is known their state is the desired one.
		if k.Protocol != model.TCP && (len(stayed) == 0 || w.between) && len(w.stay) > 0 {
			c.suspects.keys[k] = struct{}{}
		}
	}
	if len(lost) == 0 {
		return
	}
	if len(c.lost) >= maxLost {
		c.p.Log.Warn("cannot read conntrack, and too many Services changed: stale flows of some removed endpoints remain")
		clear(c.lost)
	}
	if at := union(c.lost[k].at, lost); len(at) <= maxLost {
		lost = at
	}
	c.lost[k] = lostEndpoints{at: lost, round: c.rounds}
	c.suspects.lost[k] = struct{}{}
	for _, a := range lost {
		c.suspects.ends[end{k.Protocol, a}] = struct{}{}
	}
}

func contains(sorted []netip.AddrPort, a netip.AddrPort) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.AddrPort.Compare)
	return ok
}
