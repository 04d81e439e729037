package policy

import (
	"net/netip"

	"github.com/fairlead/fairlead/internal/model"
)

// Inputs is everything that decides one Service. Service may be nil (only
// slices are known); then there are no Frontends.
type Inputs struct {
	Service *model.Service
	Slices  []*model.Slice // sorted by key
	Node    Self
	// Owns tells whether this Service holds a key that others may claim too;
	// nil means it holds all.
	Owns func(model.FrontendKey) bool
}

// Self is what policy must know of this node to choose endpoints.
type Self struct {
	Name  string
	Zone  string
	Addrs []netip.Addr // the node's own addresses, sorted

	// ServiceCIDRs are the cluster's Service ranges; empty if unknown.
	ServiceCIDRs []netip.Prefix
	// NoExternalIPs: spec.externalIPs are not served (the feature gate
	// AllowServiceExternalIPs is off).
	NoExternalIPs bool
}

// Result is the whole decision for one Service.
type Result struct {
	Frontends []model.Frontend
	Problems  []model.Problem // what of the Service's wishes beyond the contract cannot be
	Health    *HealthCheck    // nil unless the Service asks for a health check node port
	Notes     []Note          // why endpoints were left out, for explanations
	// NoLocal tells that a Local policy holds but no endpoint is here although
	// there are some elsewhere (the metric no_local_endpoints_total).
	NoLocalInternal, NoLocalExternal bool
}

// HealthCheck is what a healthCheckNodePort answers from.
type HealthCheck struct {
	Port  uint16
	Local int // ready endpoints on this node, by address; of two families the one with more
}

// Note explains one port's choice of endpoints in one family.
type Note struct {
	Port   string
	Family model.Family
	Text   string
}

// Frontends decides one Service. The order of the result is fixed: by port as in
// the spec, IPv4 before IPv6, then ClusterIP, load balancer IPs, external IPs,
// NodePort.
func Frontends(in Inputs) Result {
	var res Result
	in.Service, res.Problems = Admit(in.Service, &in.Node)
	svc := in.Service
	if svc == nil || !svc.Proxied {
		return res
	}
	ranges, problems := portRanges(svc)
	res.Problems = append(res.Problems, problems...)
	for i := range svc.Ports {
		var r portRange
		if ranges != nil {
			r = ranges[i]
		}
		for _, fam := range [...]model.Family{model.IPv4, model.IPv6} {
			in.port(&res, servicePort{&svc.Ports[i], r, fam})
		}
	}
	if svc.HealthCheckNodePort != 0 && svc.ExternalLocal {
		res.Health = &HealthCheck{Port: svc.HealthCheckNodePort, Local: readyLocal(&in)}
	}
	return res
}

// servicePort is one entry of spec.ports in one family, with the range that it
// serves besides.
type servicePort struct {
	*model.ServicePort
	ports  portRange
	family model.Family
}

// port appends the Frontends of one ServicePort in one family.
func (in *Inputs) port(res *Result, p servicePort) {
	svc := in.Service
	if !servesFamily(svc, p.family) {
		return
	}
	ch := in.choose(p.ServicePort, p.family)
	if ch.note != "" {
		res.Notes = append(res.Notes, Note{Port: p.Name, Family: p.family, Text: ch.note})
	}
	if len(ch.local) == 0 && ch.any {
		res.NoLocalInternal = res.NoLocalInternal || svc.InternalLocal
		res.NoLocalExternal = res.NoLocalExternal || svc.ExternalLocal
	}
	each := func(kind model.FrontendKind, list []netip.Addr) {
		for _, a := range list {
			if model.FamilyOf(a) != p.family {
				continue
			}
			key := model.FrontendKey{Family: p.family, Protocol: p.Protocol, Addr: a, Port: p.Port}
			in.add(res, model.Frontend{Key: key, Kind: kind, Port: p.Name}, &ch)
			if p.ports.last != 0 {
				key.Port, key.LastPort = p.ports.first, p.ports.last
				wide := ch.ofRange()
				in.add(res, model.Frontend{Key: key, Kind: kind, Port: p.Name}, &wide)
			}
		}
	}
	each(model.ClusterIP, svc.ClusterIPs)
	// An address that is both is guarded as a load balancer's: the safe reading.
	each(model.LoadBalancer, svc.LoadBalancerIPs)
	each(model.ExternalIP, svc.ExternalIPs)
	if p.NodePort != 0 {
		key := model.FrontendKey{Family: p.family, Protocol: p.Protocol, Port: p.NodePort}
		in.add(res, model.Frontend{Key: key, Kind: model.NodePort, Port: p.Name}, &ch)
	}
}

// add appends one Frontend, unless the key is another Service's or is there
// already: one Service may name an address twice (external and load balancer IP).
func (in *Inputs) add(res *Result, f model.Frontend, ch *choice) {
	if in.Owns != nil && !in.Owns(f.Key) {
		return
	}
	for i := range res.Frontends {
		if res.Frontends[i].Key == f.Key {
			return
		}
	}
	svc := in.Service
	f.Service, f.Others, f.ConsistentHash = svc.Key, ch.others, svc.Extras.ConsistentHash
	if f.Key.Range() { // by hash, a client has one endpoint for all its ports
		f.ConsistentHash = f.ConsistentHash || svc.AffinityTimeout > 0
	} else {
		f.AffinityTimeout = svc.AffinityTimeout
	}
	in.decide(&f, ch)
	res.Frontends = append(res.Frontends, f)
}

// servesFamily: a Service serves the families of its cluster IPs (contract.md 1).
func servesFamily(svc *model.Service, fam model.Family) bool {
	for _, a := range svc.ClusterIPs {
		if model.FamilyOf(a) == fam {
			return true
		}
	}
	return false
}

// decide fills in verdicts, backends and the firewall of one Frontend (contract.md 4 to 7).
func (in *Inputs) decide(f *model.Frontend, ch *choice) {
	svc := in.Service
	if !f.Kind.External() {
		if svc.InternalLocal {
			f.Verdict, f.Backends = ch.verdict(ch.local), ch.local
		} else {
			f.Verdict, f.Backends = ch.verdict(ch.cluster), ch.cluster
		}
		return
	}
	f.Verdict, f.Backends = ch.verdict(ch.cluster), ch.cluster
	if svc.ExternalLocal {
		f.HealthCheckNodePort = svc.HealthCheckNodePort
	}
	if svc.ExternalLocal && ch.any {
		f.LocalOnly = true
		f.LocalVerdict, f.LocalBackends = ch.verdict(ch.local), ch.local
	} else {
		f.Masquerade = f.Verdict == model.Forward
	}
	in.guard(f)
}

// verdict for traffic that may use only list (contract.md 7).
func (ch *choice) verdict(list []model.Backend) model.Verdict {
	switch {
	case len(list) > 0:
		return model.Forward
	case ch.any:
		return model.Drop
	}
	return model.Reject
}
