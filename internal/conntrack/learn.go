package conntrack

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// maxSuspects bounds the list of what to look for, maxEnded the memory of keys
// that have gone while the table cannot be read; then everything is compared.
const (
	maxSuspects = 10_000
	maxEnded    = 65_536
)

func (c *Cleaner) concerns(k model.FrontendKey) bool {
	if len(c.p.Families) > 0 && !slices.Contains(c.p.Families, k.Family) {
		return false
	}
	return k.Protocol != model.TCP || c.p.ResetGone
}

// stay gives where the flows of a Frontend may go on to. Both lists count: a flow
// does not tell whether its client is a pod, which may use Backends, or an
// outsider under policy Local. A datagram to an endpoint that does not serve is
// lost, so UDP leaves it; a connection (SCTP, TCP) is left to finish as long as
// the endpoint exists.
func stay(f *model.Frontend) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(f.Backends)+len(f.LocalBackends)+len(f.Others))
	for i := range f.Backends {
		out = append(out, f.Backends[i].AddrPort())
	}
	for i := range f.LocalBackends {
		out = append(out, f.LocalBackends[i].AddrPort())
	}
	for i := range f.Others {
		if f.Others[i].Serving || f.Key.Protocol != model.UDP {
			out = append(out, f.Others[i].Addr)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Clip(slices.Compact(out))
}

// learn takes the inbox, and notes what may be stale by the difference.
func (c *Cleaner) learn() {
	c.mu.Lock()
	in := c.in
	c.in = inbox{}
	c.mu.Unlock()
	if in.nodePorts != nil {
		c.nodePorts = map[netip.Addr]struct{}{}
		for _, a := range in.nodePorts {
			c.nodePorts[a] = struct{}{}
		}
	}
	for k, list := range in.was {
		c.was[k] = union(c.was[k], list)
	}
	for k, ch := range in.changes {
		c.learnKey(k, ch)
	}
	if in.sweep {
		c.inSync, c.suspects.all = true, true
	}
	if len(c.suspects.ends)+len(c.suspects.keys) > maxSuspects {
		c.suspects.all = true
	}
	if c.suspects.all {
		c.suspects = newSuspects()
		c.suspects.all = true
	}
}

func (c *Cleaner) learnKey(k model.FrontendKey, ch change) {
	stayed, had := c.known[k]
	old := union(stayed, c.was[k])
	delete(c.was, k)
	c.ranges.add(k)
	if ch.gone {
		delete(c.known, k)
		if len(old) == 0 {
			return
		}
		if len(c.ended) >= maxEnded {
			c.p.Log.Warn("too many Services have gone while conntrack cannot be read: flows of some stay")
			clear(c.ended)
		}
		c.ended[k] = append(c.ended[k], old...)
	} else {
		c.known[k] = ch.stay
		delete(c.ended, k)
		// Flows may have begun before somebody answered for the key, and so have
		// no translation, for good (#48370).
		if k.Protocol != model.TCP && (!had || len(stayed) == 0 && len(ch.stay) > 0) {
			c.suspects.keys[k] = struct{}{}
		}
	}
	for _, a := range old {
		if ch.gone || !contains(ch.stay, a) {
			c.suspects.ends[end{k.Protocol, a}] = struct{}{}
			c.suspects.lost[k] = struct{}{}
		}
	}
}

func contains(sorted []netip.AddrPort, a netip.AddrPort) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.AddrPort.Compare)
	return ok
}
