package inspect

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// ways returns what happens to new connections to a Frontend in this mode: to those of one client, or to those of all clients, one Way per
// group of clients.
func (q *Question) ways(v engine.View, node *model.NodeView, f *model.Frontend, c *Client) (out []Way) {
	if v.Unserved(f) != "" {
		return []Way{q.unserved(v, node, f, netip.AddrPortFrom(f.Key.Addr, f.Key.Port))}
	}
	if c != nil {
		out = []Way{WayOf(f, node, *c)}
	} else {
		out = Ways(f, node)
	}
	for i := range out {
		out[i].schedule(f, q.Scheduler)
		if q.Answered != nil {
			out[i].relay(f, c)
		}
	}
	return out
}

// unserved returns what happens to packets to a Frontend that this mode does not serve: the same as to packets to other ports
// of its address.
func (q *Question) unserved(v engine.View, node *model.NodeView, f *model.Frontend, to netip.AddrPort) Way {
	outcome, _ := q.nobodys(v, node, to, f.Key.Protocol)
	return Way{Verdict: outcome, Why: v.Unserved(f)}
}

// takenBy returns the Service that owns a ClusterIP at which all other ports are refused. In modes that make ClusterIPs the node's own
// addresses, they are refused only while one of the Service's ports is served.
func (q *Question) takenBy(v engine.View, node *model.NodeView, a netip.Addr) (owner model.ServiceKey, kind string, taken bool) {
	if !q.OwnsAddresses {
		owner, taken = v.ClusterIPOf(a)
		return owner, "the ClusterIP", taken
	}
	if !a.IsValid() || slices.Contains(node.NodeAddrs, a) { // the node's own address, with or without a Service
		return owner, kind, false
	}
	for k := range v.State().Keys() {
		svc, _ := v.State().Service(k)
		if svc == nil || taken && owner.Compare(k) < 0 || !hasAddress(svc, a) { // of several Services the first by name is used
			continue
		}
		res := v.Decide(k)
		for i := range res.Frontends {
			if f := &res.Frontends[i]; f.Key.Addr == a && f.Kind == model.ClusterIP && v.Unserved(f) == "" {
				owner, kind, taken = k, "an address ("+f.Kind.String()+")", true
			}
		}
	}
	return owner, kind, taken
}

func hasAddress(svc *model.Service, a netip.Addr) bool {
	return slices.Contains(svc.ClusterIPs, a) || slices.Contains(svc.LoadBalancerIPs, a) || slices.Contains(svc.ExternalIPs, a)
}

// byAgent is why endpoints see this node's address if no rules translate.
const byAgent = "the agent relays the connection"

// relay adjusts a Way to a mode in which the agent carries the connections. c is nil if all clients are meant.
func (y *Way) relay(f *model.Frontend, c *Client) {
	y.Masquerade = ""
	switch {
	case f.Refuses(): // no socket is opened that could distinguish clients
		*y = Way{For: y.For, Verdict: model.Reject.String(), Why: "no usable endpoint"}
	case y.Verdict != model.Forward.String():
	case !f.Relay.KeepSource:
		y.Masquerade = byAgent
	case c != nil && slices.ContainsFunc(y.list, func(b model.Backend) bool { return b.Addr == c.Addr }):
		y.Masquerade = Hairpin
	}
}
