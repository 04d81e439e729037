package userspace

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// whileUsed is a practically unlimited linger; Drained ends it.
const whileUsed = 10 * 365 * 24 * time.Hour

var _ dataplane.Drainer = (*Driver)(nil)

// Linger implements dataplane.Driver. Without the route to a Service's address, or the rule for an endpoint's replies,
// the connections of a deleted object would neither continue nor be reset, but hang. Only the kernel knows these connections:
// an earlier agent may still relay some, and data of closed ones may be in transit.
func (d *Driver) Linger(k dataplane.Key) time.Duration {
	switch {
	case k.Kind != kindRoute && k.Kind != kindPort && k.Kind != kindReturn:
		return 0
	case d.p.Talks == nil:
		return d.p.LingerBlind
	}
	return whileUsed
}

// Drained implements dataplane.Drainer. It returns the lingering routes and rules that no connection needs any more.
func (d *Driver) Drained(_ context.Context, lingering []dataplane.Key) (out []dataplane.Key, err error) {
	if d.p.Talks == nil {
		return nil, nil
	}
	talks, err := d.p.Talks()
	if err != nil {
		return nil, err
	}
	needed := map[dataplane.Key]bool{}
	for _, t := range talks {
		needed[portKey(link.Server{At: t.Own, Protocol: t.Protocol})] = true
		needed[dataplane.Key{Kind: kindRoute, Family: model.FamilyOf(t.Own.Addr()), ID: t.Own.Addr().String()}] = true
		if relay.FirstSourcePort <= t.Own.Port() && t.Own.Port() <= relay.LastSourcePort {
			needed[returnKey(link.Server{At: t.Peer, Protocol: t.Protocol})] = true
		}
	}
	d.mu.Lock()
	for s := range d.ports { // the rule delivers the connections; a route of an older version would make the host with that address unreachable
		delete(needed, dataplane.Key{Kind: kindRoute, Family: model.FamilyOf(s.At.Addr()), ID: s.At.Addr().String()})
	}
	d.mu.Unlock()
	for _, k := range lingering {
		if !needed[k] {
			out = append(out, k)
		}
	}
	return out, nil
}
