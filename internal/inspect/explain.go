package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Explanation is the answer of `fairlead explain`.
type Explanation struct {
	Asked     string     `json:"asked"`
	Service   string     `json:"service,omitempty"` // "" if there is none
	Summary   string     `json:"summary"`
	Well      bool       `json:"well"`
	Outcome   string     `json:"outcome"` // forward, reject or drop; none: no Service has it, or they differ
	From      *Client    `json:"from,omitempty"`
	Notes     []string   `json:"notes,omitempty"`    // why endpoints are chosen, or not
	Problems  []string   `json:"problems,omitempty"` // of the Service and of what it asks for
	Defaults  []string   `json:"defaults,omitempty"` // what holds because nobody said otherwise
	Keys      []Key      `json:"keys,omitempty"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	More      int        `json:"moreEndpoints,omitempty"` // that are not listed
	Kernel    *Agreement `json:"inKernel,omitempty"`      // nil: it was not looked at
	Refused   *Refused   `json:"refused,omitempty"`       // the kernel has not what was decided
	FastPath  string     `json:"fastPath,omitempty"`      // whether its connections are accelerated; "" where nobody asked for that
	Flows     *OpenFlows `json:"flows,omitempty"`         // nil: nobody asked

	frontends []model.FrontendKey // of Keys
}

// Key is one thing that a packet may be sent to, and what becomes of it.
type Key struct {
	Key  string `json:"key"`
	Kind string `json:"kind"`
	Port string `json:"port,omitempty"`
	// Also are Services that ask for it in vain.
	Also []string `json:"alsoClaimedBy,omitempty"`
	// At is where the agent answers for it, if not at that address.
	At   []string `json:"answeredAt,omitempty"`
	Ways []Way    `json:"ways"`
}

// Endpoint is one entry of an EndpointSlice, and whether it gets new connections.
type Endpoint struct {
	Addr  string `json:"address"`
	State string `json:"state"`
	New   bool   `json:"new"`
	Why   string `json:"why,omitempty"` // it gets none
	Port  string `json:"port,omitempty"`
	Slice string `json:"slice"`
	// Flows are the open ones to it; nil: nobody asked, or they are not known.
	Flows *FlowCount `json:"flows,omitempty"`

	at flowEnd
}

// Key gives the Service that the answer is about; the zero key if there is none.
func (e *Explanation) ServiceKey() model.ServiceKey {
	ns, name, _ := strings.Cut(e.Service, "/")
	return model.ServiceKey{Namespace: ns, Name: name}
}

// Question is what `fairlead explain` is asked.
type Question struct {
	Text    string
	Subject Subject
	From    netip.Addr // whose connection; the zero Addr: everybody's
	Device  Routes
	// DropsStrays is dataplane.Caps.DropsStrays.
	DropsStrays bool
	Offload     *Offload // nil: acceleration was not asked for
	Scheduler   string   // of IPVS, where a Service names none; "": no scheduler chooses
	Answered    Answered // nil: rules take what is sent to the addresses of Services
}

// Answered tells where the agent itself answers for a Frontend, because its mode writes no rules.
type Answered func(f *model.Frontend, v *model.NodeView) []netip.AddrPort

// Explain answers; it belongs to the engine's goroutine.
func Explain(q Question, v engine.View) Explanation {
	e := explainer{q: q, v: v, node: v.Node(), out: Explanation{Asked: q.Text, Outcome: "none"}}
	if q.From.IsValid() {
		c := ClientOf(q.From, &e.node, q.Device)
		e.out.From = &c
	}
	if q.Subject.ByName() {
		e.byName()
	} else {
		e.byAddress()
	}
	return e.out
}

type explainer struct {
	q    Question
	v    engine.View
	node model.NodeView
	svc  *model.Service
	out  Explanation
}

// byName explains a Service, or one of its ports.
func (e *explainer) byName() {
	key := e.q.Subject.Service
	svc, _ := e.v.State().Service(key)
	if svc == nil {
		e.unknown(key)
		return
	}
	if !svc.Proxied {
		e.out.Service, e.out.Well = key.String(), true
		e.out.Summary = key.String() + whyNotProxied(svc)
		return
	}
	res := e.v.Decide(key)
	chosen := slices.DeleteFunc(slices.Clone(res.Frontends), func(f model.Frontend) bool { return !e.wanted(&f) })
	if len(chosen) == 0 && e.q.Subject.Port != "" && len(res.Frontends) > 0 {
		e.out.Service, e.out.Summary = key.String(), fmt.Sprintf("Service %s has no port %q", key, e.q.Subject.Port)
		return
	}
	e.service(svc, &res, chosen)
}

func (e *explainer) unknown(key model.ServiceKey) {
	e.out.Summary = fmt.Sprintf("no Service %s is known", key)
	if _, list := e.v.State().Service(key); len(list) > 0 {
		e.out.Summary += fmt.Sprintf(", though %d EndpointSlices name it", len(list))
	}
	if waiting := e.v.Waiting(); len(waiting) > 0 {
		e.out.Summary += " yet: still waiting for " + list(waiting)
	}
}

func whyNotProxied(svc *model.Service) string {
	switch {
	case svc.Headless:
		return " is headless: it has no address of its own, and its names lead straight to pods"
	case svc.ExternalName != "":
		return " is an ExternalName: its name leads to " + svc.ExternalName
	}
	return " is not for this proxy: it has no ClusterIP, or carries service.kubernetes.io/service-proxy-name"
}

// wanted tells whether the question is about this Frontend.
func (e *explainer) wanted(f *model.Frontend) bool {
	p := e.q.Subject.Port
	return p == "" || p == f.Port || p == fmt.Sprint(f.Key.Port)
}

// byAddress explains what a packet is sent to.
func (e *explainer) byAddress() {
	for _, proto := range e.q.Subject.protocols() {
		if f := Find(e.v, &e.node, e.q.Subject.To, proto); f != nil {
			svc, _ := e.v.State().Service(f.Service)
			res := e.v.Decide(f.Service)
			e.service(svc, &res, []model.Frontend{*f})
			return
		}
	}
	to := e.q.Subject.To
	e.out.Outcome, e.out.Summary = e.q.nobodys(e.v, &e.node, to)
}

// Find gives the Frontend that a packet meets; nil if there is none. Of an invalid
// address, the NodePort.
func Find(v engine.View, node *model.NodeView, to netip.AddrPort, proto model.Protocol) *model.Frontend {
	a := to.Addr()
	key := model.FrontendKey{Protocol: proto, Port: to.Port()}
	if !a.IsValid() {
		for _, key.Family = range [...]model.Family{model.IPv4, model.IPv6} {
			if f := decided(v, key, to.Port()); f != nil {
				return f
			}
		}
		return nil
	}
	key.Family = model.FamilyOf(a)
	exact, wide := key, key
	exact.Addr, wide.Addr = a, a
	wide.Port, wide.LastPort = 0, 1 // whichever range the address has
	f := decided(v, exact, to.Port())
	if f == nil && slices.Contains(node.NodePortAddrs, a) {
		f = decided(v, key, to.Port())
	}
	if f == nil {
		f = decided(v, wide, to.Port())
	}
	return f
}

// decided gives the Frontend of a key, or the range that has the port; nil if nobody
// holds it.
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

// nobodys tells what becomes of a packet that meets no Frontend.
func (q *Question) nobodys(v engine.View, node *model.NodeView, to netip.AddrPort) (outcome, why string) {
	a := to.Addr()
	here := slices.Contains(node.NodeAddrs, a)
	switch waiting := v.Waiting(); {
	case len(waiting) > 0: // the kernel may hold what an earlier run wrote
		what := to.String()
		if !a.IsValid() {
			what = fmt.Sprintf("the NodePort %d", to.Port())
		}
		return "none", fmt.Sprintf("no Service with %s is known yet, and until then rules stay as they were: still waiting for %s", what, list(waiting))
	case !a.IsValid():
		return "none", fmt.Sprintf("no Service has the NodePort %d", to.Port())
	case v.IsClusterIP(a):
		return model.Reject.String(), fmt.Sprintf("%s is the ClusterIP of a Service that has no port %d: refused", a, to.Port())
	case here:
		return "none", fmt.Sprintf("no Service has %s: it is this node's own address, and what listens there answers", to)
	case q.DropsStrays && slices.ContainsFunc(node.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }):
		return model.Drop.String(), fmt.Sprintf("%s is in the cluster's Service ranges, and no Service has it: dropped", a)
	}
	return "none", fmt.Sprintf("no Service has %s: fairlead leaves such packets alone", to)
}

// service fills in the answer about some Frontends of a Service.
func (e *explainer) service(svc *model.Service, res *policy.Result, chosen []model.Frontend) {
	e.svc = svc
	e.out.Service = svc.Key.String()
	for i := range chosen {
		e.out.Keys = append(e.out.Keys, e.key(&chosen[i]))
		e.out.frontends = append(e.out.frontends, chosen[i].Key)
	}
	for _, p := range res.Problems {
		e.out.Problems = append(e.out.Problems, p.String())
	}
	e.notes(res, chosen)
	e.endpoints(chosen)
	e.defaults(chosen)
	if h, held := e.v.HeldOf(svc.Key); held {
		r := RefusedOf(h)
		e.out.Refused = &r
	}
	e.out.FastPath = e.q.Offload.of(svc, chosen)
	if e.q.Offload != nil && e.q.Offload.Threshold > 0 {
		e.out.FastPath = excluding(e.out.FastPath, chosen, e.node.Unaccelerated, e.q.From)
	}
	e.sumUp(res, chosen)
}

func (e *explainer) key(f *model.Frontend) Key {
	k := Key{Key: f.Key.String(), Kind: f.Kind.String(), Port: f.Port}
	_, losers, _ := e.v.Holder(f.Key)
	for _, l := range losers {
		if l != f.Service {
			k.Also = append(k.Also, l.String())
		}
	}
	if e.out.From != nil {
		k.Ways = []Way{WayOf(f, &e.node, *e.out.From)}
	} else {
		k.Ways = Ways(f, &e.node)
	}
	for i := range k.Ways {
		k.Ways[i].schedule(f, e.q.Scheduler)
	}
	if e.q.Answered != nil {
		for i := range k.Ways {
			k.Ways[i].relay(f)
		}
		for _, at := range e.q.Answered(f, &e.node) {
			if at != netip.AddrPortFrom(f.Key.Addr, f.Key.Port) {
				k.At = append(k.At, at.String())
			}
		}
	}
	return k
}
