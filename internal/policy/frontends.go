package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Inputs is everything that decides one Service. Service may be nil (only
// slices are known); then there are no Frontends.
type Inputs struct {
	Service *model.Service
	Slices  []*model.Slice // sorted by key
	Node    Self
	// Owns reports whether this Service holds a key that others may claim too;
	// nil means it holds all.
	Owns func(model.FrontendKey) bool

	claims  *Claims  // the same as Owns, for all Services
	scratch *scratch // nil: the decision uses memory of its own
}

// Self is the state of this node that policy needs to choose endpoints.
type Self struct {
	Name  string
	Zone  string
	Addrs []netip.Addr // the node's own addresses, sorted

	// ServiceCIDRs are the cluster's Service ranges; empty if unknown.
	ServiceCIDRs []netip.Prefix
	// NoExternalIPs: spec.externalIPs are not served (the feature gate
	// AllowServiceExternalIPs is off).
	NoExternalIPs bool
	// NoExternalIPsOfNode: an external IP that is in Addrs is not served.
	NoExternalIPsOfNode bool
	// Relayed: this node's data plane carries connections itself, as only that of
	// userspace mode does. Set once.
	Relayed bool
	// NoSource is the reason why that data plane cannot keep the clients' addresses; "" if it can.
	// Set once.
	NoSource string
}

// Result is the whole decision for one Service.
type Result struct {
	Frontends []model.Frontend
	Problems  []model.Problem // requests of the Service beyond the contract that cannot be fulfilled
	Health    *HealthCheck    // nil unless the Service asks for a health check node port
	Notes     []Note          // why endpoints were left out, for explanations
	// NoLocal reports that a Local policy holds but no endpoint is here although
	// there are some elsewhere (the metric no_local_endpoints_total).
	NoLocalInternal, NoLocalExternal bool
	NoLocalFamilies                  []model.Family // where that is so
}

// HealthCheck is the data for the answers of a healthCheckNodePort (contract.md 11).
type HealthCheck struct {
	Port  uint16
	Local int // ready endpoints on this node, by address; of two families the one with more
}

// Frontends returns the decision for one Service. It is pure. The order of the result is fixed: by port as in
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
	res.Problems = append(res.Problems, unfulfilled(svc, &in.Node)...)
	for _, a := range ofNode(svc, &in.Node) {
		res.Notes = append(res.Notes, Note{Kind: ExternalIPOfNode, Family: model.FamilyOf(a),
			Text: fmt.Sprintf("the external IP %s is an address of this node (--no-external-ips-of-node denies that)", a)})
	}
	if in.scratch == nil {
		in.scratch = &scratch{}
	}
	addrs := in.scratch.addressesOf(svc)
	res.Frontends = make([]model.Frontend, 0, addrs.frontends(svc.Ports, ranges))
	var single, node portSet
	for i := range svc.Ports {
		p := servicePort{ServicePort: &svc.Ports[i], nth: i}
		if ranges != nil {
			p.ports = ranges[i]
		}
		// A number that two entries of spec.ports name is the first one's.
		p.again = single.addAgain(p.Protocol, p.Port)
		p.nodePortAgain = p.NodePort == 0 || node.addAgain(p.Protocol, p.NodePort)
		for f, fam := range [...]model.Family{model.IPv4, model.IPv6} {
			if p.family = fam; servesFamily(svc, fam) {
				in.port(&res, &p, addrs[f])
			}
		}
	}
	if svc.HealthCheckNodePort != 0 && svc.ExternalLocal {
		res.Health = &HealthCheck{Port: svc.HealthCheckNodePort, Local: readyLocal(&in)}
	}
	return res
}

// servicePort is one entry of spec.ports in one family, with the range that it
// serves in addition.
type servicePort struct {
	*model.ServicePort
	nth                  int
	ports                portRange
	family               model.Family
	again, nodePortAgain bool // the number is an earlier entry's
}

// vip is an address on which a Service is served.
type vip struct {
	kind model.FrontendKind
	addr netip.Addr
}

// serviceAddrs are the addresses of a Service by family, IPv4 first, in the order of its
// Frontends; each of them once.
type serviceAddrs [2][]vip

// addressesOf returns addresses that are valid until the next decision.
func (s *scratch) addressesOf(svc *model.Service) *serviceAddrs {
	out := &s.addrs
	out[0], out[1] = out[0][:0], out[1][:0]
	out.add(model.ClusterIP, svc.ClusterIPs)
	// An address that is both is guarded as a load balancer's: the safe reading.
	out.add(model.LoadBalancer, svc.LoadBalancerIPs)
	out.add(model.ExternalIP, svc.ExternalIPs)
	return out
}

func (a *serviceAddrs) add(kind model.FrontendKind, list []netip.Addr) {
	for _, addr := range list {
		of := &a[0]
		if model.FamilyOf(addr) == model.IPv6 {
			of = &a[1]
		}
		if !slices.ContainsFunc(*of, func(v vip) bool { return v.addr == addr }) {
			*of = append(*of, vip{kind, addr})
		}
	}
}

// frontends returns an upper bound for the number of Frontends.
func (a *serviceAddrs) frontends(ports []model.ServicePort, ranges []portRange) int {
	n := (len(a[0]) + len(a[1])) * (len(ports) + len(ranges))
	for i := range ports {
		if ports[i].NodePort != 0 {
			n += 2
		}
	}
	return n
}

// port appends the Frontends of one ServicePort in one family.
func (in *Inputs) port(res *Result, p *servicePort, addrs []vip) {
	svc := in.Service
	ch := in.choose(p)
	for _, n := range ch.notes {
		n.Port, n.Family = p.Name, p.family
		res.Notes = append(res.Notes, n)
	}
	if ch.cut > 0 {
		res.Problems = append(res.Problems, model.Problem{Object: "Service " + svc.Key.String(), Field: fmt.Sprintf("spec.ports[%d]", p.nth),
			Reason: fmt.Sprintf("%d %s endpoints are left out: a Service port can have %d", ch.cut, p.family, MaxBackends)})
	}
	if len(ch.local) == 0 && ch.any {
		res.noLocal(svc, p.family)
	}
	var wide choice
	if p.ports.last != 0 {
		wide = ch.ofRange()
		if svc.Extras.ConsistentHash || svc.AffinityTimeout > 0 {
			wide.hash()
		}
	}
	if svc.Extras.ConsistentHash {
		ch.hash()
	}
	for _, v := range addrs {
		key := model.FrontendKey{Family: p.family, Protocol: p.Protocol, Addr: v.addr, Port: p.Port}
		if !p.again {
			in.add(res, model.Frontend{Key: key, Kind: v.kind, Port: p.Name}, &ch)
		}
		if p.ports.last != 0 {
			key.Port, key.LastPort = p.ports.first, p.ports.last
			in.add(res, model.Frontend{Key: key, Kind: v.kind, Port: p.Name}, &wide)
		}
	}
	if !p.nodePortAgain {
		key := model.FrontendKey{Family: p.family, Protocol: p.Protocol, Port: p.NodePort}
		in.add(res, model.Frontend{Key: key, Kind: model.NodePort, Port: p.Name}, &ch)
	}
}

// add appends one Frontend, unless another Service owns the key.
func (in *Inputs) add(res *Result, f model.Frontend, ch *choice) {
	svc := in.Service
	if in.Owns != nil && !in.Owns(f.Key) || in.claims != nil && !in.claims.Owns(f.Key, svc.Key) {
		return
	}
	f.Service, f.ConsistentHash, f.IPVSScheduler, f.Offload = svc.Key, svc.Extras.ConsistentHash, svc.Extras.IPVSScheduler, svc.Extras.Offload
	if in.Node.Relayed {
		f.Relay = svc.Extras.Relay
		f.Relay.KeepSource = f.Relay.KeepSource && in.Node.NoSource == ""
	}
	if f.Key.Range() { // by hash, a client has one endpoint for all its ports
		f.ConsistentHash = f.ConsistentHash || svc.AffinityTimeout > 0
	} else {
		f.AffinityTimeout = svc.AffinityTimeout
	}
	in.decide(&f, ch)
	res.Frontends = append(res.Frontends, f)
}

// servesFamily reports whether a Service serves a family: those of its cluster IPs (contract.md 1).
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
	if !f.Kind.External() && svc.InternalLocal {
		f.Verdict, f.Backends, f.HashTable = ch.verdict(ch.local), ch.local, ch.localTable
		f.Others = ch.notLocal
		return
	}
	f.Verdict, f.Backends, f.HashTable = ch.verdict(ch.cluster), ch.cluster, ch.clusterTable
	f.Others = ch.notCluster
	if !f.Kind.External() {
		return
	}
	if svc.ExternalLocal {
		f.HealthCheckNodePort = svc.HealthCheckNodePort
	}
	if svc.ExternalLocal && ch.any {
		f.LocalOnly, f.Others = true, ch.others
		f.LocalVerdict, f.LocalBackends, f.LocalHashTable = ch.verdict(ch.local), ch.local, ch.localTable
	} else {
		f.Masquerade = f.Verdict == model.Forward
	}
	in.guard(f)
}

// verdict returns the verdict for traffic that may use only list (contract.md 7).
func (ch *choice) verdict(list []model.Backend) model.Verdict {
	switch {
	case len(list) > 0:
		return model.Forward
	case ch.any:
		return model.Drop
	}
	return model.Reject
}

// noLocal records that a port has endpoints in a family, and none of them here.
func (res *Result) noLocal(svc *model.Service, f model.Family) {
	res.NoLocalInternal = res.NoLocalInternal || svc.InternalLocal
	res.NoLocalExternal = res.NoLocalExternal || svc.ExternalLocal
	if (svc.InternalLocal || svc.ExternalLocal) && !slices.Contains(res.NoLocalFamilies, f) {
		res.NoLocalFamilies = append(res.NoLocalFamilies, f)
	}
}
