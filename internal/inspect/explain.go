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
	Outcome   string     `json:"outcome"` // forward, reject or drop; none: no Service has it, or the outcomes differ
	From      *Client    `json:"from,omitempty"`
	Notes     []string   `json:"notes,omitempty"`    // why endpoints are chosen, or not
	Problems  []string   `json:"problems,omitempty"` // of the Service and of the features that it requests
	Defaults  []string   `json:"defaults,omitempty"` // defaults that apply because no setting overrides them
	Keys      []Key      `json:"keys,omitempty"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	More      int        `json:"moreEndpoints,omitempty"` // number of endpoints that are not listed
	Kernel    *Agreement `json:"inKernel,omitempty"`      // nil: the kernel was not read
	Refused   *Refused   `json:"refused,omitempty"`       // the kernel refused the desired state
	FastPath  string     `json:"fastPath,omitempty"`      // whether its connections are accelerated; "" if acceleration was not requested
	Flows     *OpenFlows `json:"flows,omitempty"`         // nil: not requested

	frontends []model.FrontendKey // of Keys
}

// Key is one destination of packets, and what happens to them.
type Key struct {
	Key  string `json:"key"`
	Kind string `json:"kind"`
	Port string `json:"port,omitempty"`
	// Also lists Services that claim the key and lost it to this Service.
	Also []string `json:"alsoClaimedBy,omitempty"`
	// At is where the agent answers for the key, if not at that address.
	At   []string `json:"answeredAt,omitempty"`
	Ways []Way    `json:"ways"`
}

// Endpoint is one entry of an EndpointSlice. It states whether the endpoint
// receives new connections.
type Endpoint struct {
	Addr  string `json:"address"`
	State string `json:"state"`
	New   bool   `json:"new"`
	Why   string `json:"why,omitempty"` // why it receives none
	Port  string `json:"port,omitempty"`
	Slice string `json:"slice"`
	// Flows counts the open flows to the endpoint; nil: not requested, or
	// unknown.
	Flows *FlowCount `json:"flows,omitempty"`

	at flowEnd
}

// ServiceKey returns the Service that the answer is about; the zero key if there is
// none.
func (e *Explanation) ServiceKey() model.ServiceKey {
	ns, name, _ := strings.Cut(e.Service, "/")
	return model.ServiceKey{Namespace: ns, Name: name}
}

// Question is the request of `fairlead explain`.
type Question struct {
	Text    string
	Subject Subject
	From    netip.Addr // address of the client; the zero Addr: all clients
	Device  Routes
	// DropsStrays is dataplane.Caps.DropsStrays.
	DropsStrays bool
	// OwnsAddresses is dataplane.Caps.OwnsAddresses.
	OwnsAddresses bool
	Offload       *Offload // nil: acceleration was not requested
	OnlyProxied   bool     // headless Services and those of other proxies are not read
	Scheduler     string   // IPVS scheduler of Services that specify none; "": the mode has no scheduler
	Answered      Answered // nil: rules handle packets to the addresses of Services
	Asked         Asked    // nil if Answered is nil
}

// Asked is the inverse of Answered: it returns the address that a client of the cluster would use, for the address where the
// agent answers on this node.
type Asked func(here netip.AddrPort, svc *model.Service) (netip.AddrPort, bool)

// Answered returns the addresses where the agent itself answers for a Frontend, because its mode
// writes no rules.
type Answered func(f *model.Frontend, v *model.NodeView) []netip.AddrPort

// Explain returns the answer to a Question. Only the engine's goroutine may call
// it.
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
	if len(chosen) == 0 && e.v.Withheld(key) {
		e.out.Service, e.out.Summary = key.String(), fmt.Sprintf("Service %s has no endpoint in the sources read so far; the rules of an earlier run are kept: still waiting for %s",
			key, list(e.v.Waiting()))
		return
	}
	if len(chosen) == 0 && e.q.Subject.Port != "" && len(res.Frontends) > 0 {
		e.out.Service, e.out.Summary = key.String(), fmt.Sprintf("Service %s has no port %q", key, e.q.Subject.Port)
		return
	}
	reached := slices.DeleteFunc(slices.Clone(chosen), func(f model.Frontend) bool { return e.foreign(&f) })
	if len(reached) == 0 && len(chosen) > 0 {
		e.out.Service, e.out.Summary = key.String(), fmt.Sprintf("Service %s has no address of %s here, so %s cannot reach it", key, model.FamilyOf(e.q.From), e.q.From)
		return
	}
	e.service(svc, &res, reached)
}

func (e *explainer) unknown(key model.ServiceKey) {
	e.out.Summary = fmt.Sprintf("no Service %s is known", key)
	if _, list := e.v.State().Service(key); len(list) > 0 {
		e.out.Summary += fmt.Sprintf(", though %d EndpointSlices name it", len(list))
	}
	if waiting := e.v.Waiting(); len(waiting) > 0 {
		e.out.Summary += " yet: still waiting for " + list(waiting)
	} else if e.q.OnlyProxied {
		e.out.Summary += "; headless Services, and those of another proxy, are not read"
	}
}

func whyNotProxied(svc *model.Service) string {
	switch {
	case svc.Headless:
		return " is headless: it has no address of its own, and its names resolve to pods"
	case svc.ExternalName != "":
		return " is an ExternalName: its name resolves to " + svc.ExternalName
	}
	return " is not handled by this proxy: it has no ClusterIP, or has the label service.kubernetes.io/service-proxy-name"
}

// wanted reports whether the question is about this Frontend.
func (e *explainer) wanted(f *model.Frontend) bool {
	p := e.q.Subject.Port
	return p == "" || p == f.Port || p == fmt.Sprint(f.Key.Port)
}

// service adds the answer about some Frontends of a Service.
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
	e.endpoints(res, chosen)
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
	if k.Ways = e.q.ways(e.v, &e.node, f, e.out.From); e.v.Unserved(f) != "" {
		return k
	}
	if e.q.Answered != nil {
		for _, at := range e.q.Answered(f, &e.node) {
			if at != netip.AddrPortFrom(f.Key.Addr, f.Key.Port) {
				k.At = append(k.At, at.String())
			}
		}
	}
	return k
}
