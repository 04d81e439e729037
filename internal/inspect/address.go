package inspect

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
)

// translated returns the address of the Service that the agent answers for at the address in question. If
// there is none, it returns the address in question.
func (q *Question) translated(v engine.View) netip.AddrPort {
	to := q.Subject.To
	if q.Asked == nil || !to.Addr().IsValid() {
		return to
	}
	var owner model.ServiceKey
	for k := range v.State().Keys() {
		svc, _ := v.State().Service(k)
		if svc == nil || owner.Name != "" && owner.Compare(k) < 0 { // if several Services are answered at one address, the first by name is used
			continue
		}
		if asked, is := q.Asked(q.Subject.To, svc); is {
			owner, to = k, asked
		}
	}
	return to
}

// byAddress explains what happens to a packet that is sent to an address.
func (e *explainer) byAddress() {
	found := e.meets()
	if len(found) == 0 {
		e.out.Outcome, e.out.Summary = e.q.nobodys(e.v, &e.node, e.q.Subject.To, e.q.Subject.Protocol)
		return
	}
	var chosen []model.Frontend
	for i := range found {
		f := &found[i]
		if f.Service == found[0].Service {
			chosen = append(chosen, *f)
		} else { // an answer covers one Service only
			e.out.Notes = append(e.out.Notes, fmt.Sprintf("%s is not included: it belongs to Service %s", f.Key, f.Service))
		}
	}
	svc, _ := e.v.State().Service(found[0].Service)
	res := e.v.Decide(found[0].Service)
	e.service(svc, &res, chosen)
}

// meets returns the Frontends that a packet to the address may meet: of each protocol that the question allows, and for a NodePort of
// each family.
func (e *explainer) meets() (out []model.Frontend) {
	to := e.q.translated(e.v)
	for _, proto := range e.q.Subject.protocols() {
		if to.Addr().IsValid() {
			if f := e.q.find(e.v, &e.node, to, proto); f != nil {
				out = append(out, *f)
			}
			continue
		}
		for _, fam := range [...]model.Family{model.IPv4, model.IPv6} {
			if f := decided(e.v, model.FrontendKey{Family: fam, Protocol: proto, Port: to.Port()}, to.Port()); f != nil && !e.foreign(f) {
				out = append(out, *f)
			}
		}
	}
	return out
}

// foreign reports whether a Frontend has another family than the client in the question. Such a client cannot send anything to
// it.
func (e *explainer) foreign(f *model.Frontend) bool {
	return e.q.From.IsValid() && f.Key.Family != model.FamilyOf(e.q.From)
}

// find returns the Frontend that a packet meets; nil if there is none.
func (q *Question) find(v engine.View, node *model.NodeView, to netip.AddrPort, proto model.Protocol) *model.Frontend {
	a := to.Addr()
	key := model.FrontendKey{Family: model.FamilyOf(a), Protocol: proto, Port: to.Port()}
	exact, wide := key, key
	exact.Addr, wide.Addr = a, a
	wide.Port, wide.LastPort = 0, 1 // matches any range of the address
	f := decided(v, exact, to.Port())
	if f == nil && q.hasNodePorts(node, a) {
		if f = decided(v, key, to.Port()); f != nil && q.Answered != nil && !slices.Contains(q.Answered(f, node), to) {
			f = nil
		}
	}
	if f == nil {
		f = decided(v, wide, to.Port())
	}
	return f
}

// hasNodePorts reports whether NodePorts are answered at an address: by rules, or on localhost by the agent.
func (q *Question) hasNodePorts(node *model.NodeView, a netip.Addr) bool {
	return slices.Contains(node.NodePortAddrs, a) || a == netip.IPv6Loopback() && (node.ListenLocalhost || q.Answered != nil)
}

// decided returns the Frontend of a key, or the range that contains the port; nil if
// no Service holds the key.
func decided(v engine.View, key model.FrontendKey, port uint16) *model.Frontend {
	holder, _, held := v.Holder(key)
	if !held {
		return nil
	}
	res := v.Decide(holder)
	for i := range res.Frontends {
		k := &res.Frontends[i].Key
		inRange := key.Range() && k.Range() && k.Addr == key.Addr && k.Protocol == key.Protocol && k.Port <= port && port <= k.LastPort
		if *k == key || inRange {
			return &res.Frontends[i]
		}
	}
	return nil
}

// nobodys returns what happens to a packet that meets no Frontend, and why.
// Protocol 0 means any protocol.
func (q *Question) nobodys(v engine.View, node *model.NodeView, to netip.AddrPort, proto model.Protocol) (outcome, why string) {
	a := to.Addr()
	owner, kind, taken := q.takenBy(v, node, a)
	here := slices.Contains(node.NodeAddrs, a)
	switch waiting := v.Waiting(); {
	case len(waiting) > 0: // the kernel may hold the rules of an earlier run
		what := to.String()
		if !a.IsValid() {
			what = fmt.Sprintf("the NodePort %d", to.Port())
		}
		return "none", fmt.Sprintf("no Service with %s is known yet; existing rules are kept until the sources are read: still waiting for %s", what, list(waiting))
	case !a.IsValid():
		return "none", fmt.Sprintf("no Service has the NodePort %d", to.Port())
	case taken:
		port := fmt.Sprint(to.Port())
		if proto != 0 {
			port += "/" + proto.String()
		}
		return model.Reject.String(), fmt.Sprintf("%s is %s of Service %s, which has no port %s: refused", a, kind, owner, port)
	case here:
		return "none", fmt.Sprintf("no Service has %s: it is an address of this node, and a program that listens there answers", to)
	case q.DropsStrays && slices.ContainsFunc(node.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }):
		return model.Drop.String(), fmt.Sprintf("%s is in the cluster's Service ranges, and no Service has it: dropped", a)
	}
	return "none", fmt.Sprintf("no Service has %s: fairlead does not handle these packets", to)
}
