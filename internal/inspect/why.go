package inspect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// notes returns policy's notes about the ports and families in the question.
func (e *explainer) notes(res *policy.Result, chosen []model.Frontend) {
	about := func(n policy.Note) bool {
		return n.Port == "" && n.Family == 0 || len(chosen) == 0 ||
			slices.ContainsFunc(chosen, func(f model.Frontend) bool { return f.Port == n.Port && f.Key.Family == n.Family })
	}
	families := len(slices.Compact(slices.SortedFunc(slices.Values(e.svc.ClusterIPs), netip.Addr.Compare)))
	for _, n := range res.Notes {
		if n.Kind == policy.ClaimLost || !about(n) { // a Problem reports a lost claim
			continue
		}
		text := n.Text
		if n.Port != "" {
			text = "port " + n.Port + ": " + text
		}
		if families > 1 && n.Family != 0 {
			text = n.Family.String() + " " + text
		}
		if !slices.Contains(e.out.Notes, text) {
			e.out.Notes = append(e.out.Notes, text)
		}
	}
}

// endpoints lists the endpoints of the slices for the ports in the question.
func (e *explainer) endpoints(res *policy.Result, chosen []model.Frontend) {
	type place struct {
		port string
		at   netip.AddrPort
	}
	used, why := map[place]bool{}, map[place]model.Unused{}
	ports := map[string]bool{}
	for i := range chosen {
		f := &chosen[i]
		if f.Key.Range() {
			continue
		}
		ports[f.Port] = true
		for _, list := range [...][]model.Backend{f.Backends, f.LocalBackends} {
			for _, b := range list {
				used[place{f.Port, b.AddrPort()}] = true
			}
		}
		for _, o := range f.Others {
			why[place{f.Port, o.Addr}] = o.Why
		}
	}
	_, list := e.v.State().Service(e.svc.Key)
	for _, sl := range list {
		if sl.Headless {
			continue
		}
		for _, p := range sl.Ports {
			if !ports[p.Name] || !e.hasPort(p) {
				continue
			}
			for i := range sl.Endpoints {
				ep := &sl.Endpoints[i]
				at := place{p.Name, netip.AddrPortFrom(ep.Addr, p.Port)}
				row := Endpoint{Addr: at.at.String(), State: e.state(ep), New: used[at], Port: p.Name, Slice: sl.Key.Name, at: flowEnd{p.Protocol, at.at}}
				if w := why[at]; !row.New && w != 0 {
					row.Why = w.String()
				} else if !row.New {
					row.Why = otherFamily(res, chosen, model.FamilyOf(ep.Addr))
				}
				e.endpoint(row)
			}
		}
	}
}

// otherFamily returns why endpoints of a family receive none of the connections in question; "" if the family is
// not the reason.
func otherFamily(res *policy.Result, chosen []model.Frontend, fam model.Family) string {
	has := func(list []model.Frontend) bool {
		return slices.ContainsFunc(list, func(f model.Frontend) bool { return f.Key.Family == fam })
	}
	switch {
	case has(chosen):
		return ""
	case has(res.Frontends):
		return fmt.Sprintf("not in this query: it receives connections over %s", fam)
	}
	return fmt.Sprintf("the Service has no address of %s here", fam)
}

func (e *explainer) endpoint(row Endpoint) {
	if len(e.out.Endpoints) >= maxListed {
		e.out.More++
		return
	}
	e.out.Endpoints = append(e.out.Endpoints, row)
}

func (e *explainer) hasPort(p model.SlicePort) bool {
	return slices.ContainsFunc(e.svc.Ports, func(sp model.ServicePort) bool { return sp.Name == p.Name && sp.Protocol == p.Protocol })
}

// state returns the state and the location of an endpoint.
func (e *explainer) state(ep *model.Endpoint) string {
	var words []string
	switch {
	case ep.Ready && ep.Terminating:
		words = append(words, "ready, terminating")
	case ep.Ready:
		words = append(words, "ready")
	case ep.Terminating && ep.Serving:
		words = append(words, "terminating, serving")
	case ep.Terminating:
		words = append(words, "terminating")
	default:
		words = append(words, "not ready")
	}
	switch {
	case ep.Node != "" && ep.Node == e.v.NodeName():
		words = append(words, "here")
	case ep.Node != "":
		words = append(words, "on "+ep.Node)
	}
	if ep.Zone != "" {
		words = append(words, "zone "+ep.Zone)
	}
	return strings.Join(words, ", ")
}

// defaults lists the defaults that apply because no setting overrides them.
func (e *explainer) defaults(chosen []model.Frontend) {
	say := func(format string, args ...any) {
		e.out.Defaults = append(e.out.Defaults, fmt.Sprintf(format, args...))
	}
	has := func(kind model.FrontendKind) bool {
		return slices.ContainsFunc(chosen, func(f model.Frontend) bool { return f.Kind == kind })
	}
	if has(model.NodePort) {
		at := e.nodePortAddrs(chosen)
		if len(at) == 0 {
			say("NodePorts are closed on every address: --nodeport-addresses matches no address of this node")
		} else {
			flag := "--nodeport-addresses"
			if e.q.Answered != nil {
				flag = "--userspace-addresses"
			}
			say("NodePorts are open on %s (%s)", strings.Join(at, " "), flag)
		}
	}
	if e.node.Local.Mode == model.DetectNone && has(model.ClusterIP) && e.q.Answered == nil {
		say("no cluster CIDR is known: no client is detected as a pod, and clients outside the cluster are not masqueraded (--cluster-cidr, --detect-local-mode)")
	}
	if e.svc.SourceGuarded && !has(model.LoadBalancer) && !e.guarded(chosen) {
		say("loadBalancerSourceRanges apply to load balancer addresses only, and the Service has none on this node")
	}
}

// nodePortAddrs returns the addresses on which the NodePorts of the answer can be reached.
func (e *explainer) nodePortAddrs(chosen []model.Frontend) (out []string) {
	addrs := e.node.NodePortAddrs
	if e.node.ListenLocalhost {
		addrs = append(slices.Clone(addrs), netip.IPv6Loopback())
	}
	if e.q.Answered != nil {
		addrs = nil
		for i := range chosen {
			if f := &chosen[i]; f.Kind == model.NodePort {
				for _, at := range e.q.Answered(f, &e.node) {
					addrs = append(addrs, at.Addr())
				}
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		out = append(out, a.String())
	}
	return out
}

func (e *explainer) guarded(chosen []model.Frontend) bool {
	return slices.ContainsFunc(chosen, func(f model.Frontend) bool { return f.Guarded })
}

// sumUp sets the one-line summary, and whether all is well.
func (e *explainer) sumUp(res *policy.Result, chosen []model.Frontend) {
	bad := e.outcome()
	e.out.Well = bad == "" && len(e.out.Keys) > 0 && len(res.Problems) == 0 && e.out.Refused == nil
	name := "Service " + e.svc.Key.String()
	switch {
	case e.out.Refused != nil:
		e.out.Summary = fmt.Sprintf("%s is not in the desired state: the kernel rejected %s", name, strings.Join(e.out.Refused.Objects, ", "))
	case len(e.out.Keys) == 0 && len(res.Problems) > 0:
		e.out.Summary = name + " is not served: " + res.Problems[0].Reason
	case len(e.out.Keys) == 0:
		e.out.Summary = name + " is not served: it has no port, or no address of an IP family of this node"
	case bad != "":
		if why := e.cause(res); why != "" {
			bad += " (" + why + ")"
		}
		e.out.Summary = name + ": " + bad
	case len(res.Problems) > 0:
		e.out.Summary = name + " is forwarded, but: " + res.Problems[0].Reason
	default:
		e.out.Summary = fmt.Sprintf("%s is forwarded, %s", name, endpointsOf(chosen))
	}
}

// outcome sets the common outcome of all keys, if there is one. It returns a text
// about the first key that is not forwarded.
func (e *explainer) outcome() (bad string) {
	outcomes := map[string]bool{}
	for _, k := range e.out.Keys {
		for _, w := range k.Ways {
			// A source range list that excludes other clients is intended, so it
			// is not reported.
			if e.out.From == nil && w.For == everybodyElse && strings.HasPrefix(w.Why, "not in ") {
				continue
			}
			outcomes[w.Verdict] = true
			if bad == "" && w.Verdict != model.Forward.String() {
				bad = k.Key + " is " + did(w.Verdict) + forWhom(w.For) + ": " + w.Why
			}
		}
	}
	if len(outcomes) == 1 {
		for o := range outcomes {
			e.out.Outcome = o
		}
	}
	return bad
}

// cause returns the first note that explains why endpoints are missing.
func (e *explainer) cause(res *policy.Result) string {
	for _, n := range res.Notes {
		if n.Kind == policy.NoEndpoints || n.Kind == policy.NotReady {
			return n.Text
		}
	}
	return ""
}

func did(verdict string) string {
	return map[string]string{"reject": "refused", "drop": "dropped", "forward": "forwarded", "none": "not handled"}[verdict]
}

func forWhom(who string) string {
	if who == "" {
		return ""
	}
	return " for " + who
}

func endpointsOf(chosen []model.Frontend) string {
	most := 0
	for i := range chosen {
		most = max(most, len(chosen[i].Backends), len(chosen[i].LocalBackends))
	}
	if most == 1 {
		return "to 1 endpoint"
	}
	return fmt.Sprintf("to %d endpoints", most)
}
