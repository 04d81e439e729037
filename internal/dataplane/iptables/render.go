package iptables

import (
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Render implements dataplane.Driver. What publishes a Frontend comes last, and
// of a path through the trie the deepest line first: each front part of the
// Objects jumps only to chains that exist.
func (d *Driver) Render(f *model.Frontend, view *model.NodeView, emit func(dataplane.Object)) {
	if !d.serves(f.Key.Family) {
		return
	}
	r := frontend{writer: writer{f.Key.Family, emit}, f: f, view: view, name: readable(portName(f))}
	r.count = d.counts && r.family == model.IPv4 && view.LocalhostNodePorts
	id := portName(f)
	if f.Key.Range() { // its endpoints have no port, so it shares no chain with the Service port's own
		id += " range"
	}
	r.hash = func(more string) string { return shortHash(id + word(f.Key.Protocol) + more) }
	r.pick = picker{name: id, proto: f.Key.Protocol, family: r.family, affinity: f.AffinityTimeout, hash: f.ConsistentHash, cluster: d.cluster}
	verdict, local := sane(f.Verdict, f.Backends), sane(f.LocalVerdict, f.LocalBackends)
	if !f.LocalOnly {
		local = verdict
	}
	if f.Kind == model.ClusterIP {
		// A port that a live address does not have: last in the bucket, the same
		// line for all its ports.
		r.path(refuseCluster, f.Key.Addr, refuseCluster.levels(r.family), dest(f.Key.Addr)+" -g "+rejectChain)
	}
	if f.Kind != model.ClusterIP && f.HealthCheckNodePort != 0 {
		r.port(healthPorts, model.TCP, f.HealthCheckNodePort, toPort(model.TCP, comment(r.name+" health check node port"), f.HealthCheckNodePort)+" -j ACCEPT")
	}
	if verdict == model.Forward || local == model.Forward {
		r.hairpin(f.Backends)
		r.hairpin(f.LocalBackends)
		target := r.target(verdict, local)
		r.refusals(verdict, local)
		r.leaf(dispatch, "", r.says(), " -g "+target)
		return
	}
	r.refusals(verdict, local)
	if f.Kind != model.NodePort && !f.Key.Range() {
		r.leaf(dispatch, "", r.says(), " -j RETURN") // or a range around it would take the connection
	}
}

// sane fails closed: nothing can be forwarded without a backend.
func sane(v model.Verdict, list []model.Backend) model.Verdict {
	if v == model.Forward && len(list) == 0 {
		return model.Reject
	}
	return v
}

// writer emits objects of one family.
type writer struct {
	family model.Family
	emit   func(dataplane.Object)
}

func (w writer) put(k dataplane.Kind, id, value string) {
	w.emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: w.family, ID: id}, Value: value})
}

// chain emits a chain with all its rules.
func (w writer) chain(k dataplane.Kind, t table, name string, rules ...string) {
	w.put(k, chainRef{w.family, t, name}.id(), body(rules))
}

func body(rules []string) string {
	if len(rules) == 0 {
		return emptyBody
	}
	if text := strings.Join(rules, "\n"); text != "" {
		return text
	}
	return " " // one empty rule, by another program: it counts packets, and "" would mean that the chain does not exist
}

// line emits one line of a shared chain.
func (w writer) line(t table, chain, rule string) {
	w.put(kindLine, chainRef{w.family, t, chain}.line(rule), present)
}

// path emits the lines that jump from a root to the bucket of an address, and the
// line there. The bucket's place in the trie depends on nothing but the address.
func (w writer) path(p place, a netip.Addr, steps []int, rule string) {
	chain := p.root
	chains := make([]string, 0, 8)
	prefixes := make([]netip.Prefix, 0, 8)
	for _, bits := range steps {
		pre := netip.PrefixFrom(a, bits).Masked()
		prefixes = append(prefixes, pre)
		chains = append(chains, chain)
		chain = p.bucketName(pre)
	}
	w.line(p.table, chain, rule)
	for i := len(prefixes) - 1; i >= 0; i-- {
		next := chain
		chain = chains[i]
		jump := " -g "
		if i == 0 { // what matches nothing below comes back for the root's last lines
			jump = " -j "
		}
		w.line(p.table, chain, "-d "+prefixes[i].String()+jump+next)
	}
}

// port is path for a port: blocks of 256, then of 16.
func (w writer) port(p place, proto model.Protocol, port uint16, rule string) {
	name := word(proto)
	chain := func(size uint16) string {
		return p.mark + name + "-" + itoa(int(port&^(size-1))) + "-" + itoa(int(size))
	}
	step := func(from string, size uint16, jump string) {
		first := port &^ (size - 1)
		w.line(p.table, from, "-p "+name+" -m "+name+" --dport "+itoa(int(first))+":"+itoa(int(first+size-1))+jump+chain(size))
	}
	w.line(p.table, chain(16), rule)
	step(chain(256), 16, " -g ")
	step(p.ports, 256, " -j ")
}

// frontend renders one Frontend.
type frontend struct {
	writer
	f    *model.Frontend
	view *model.NodeView
	name string                   // for comments
	hash func(more string) string // ends chain names
	pick picker
	// count what comes to NodePorts on 127.0.0.1
	count bool
}

// says returns the comment that identifies the Service of a rule.
func (r *frontend) says() string {
	switch r.f.Kind {
	case model.ClusterIP:
		return r.name + " cluster IP"
	case model.ExternalIP:
		return r.name + " external IP"
	case model.LoadBalancer:
		return r.name + " loadbalancer IP"
	}
	return r.name + " nodeport"
}

// leaf emits the line for this Frontend's key, at its end of the path.
func (r *frontend) leaf(p place, source, says, does string) {
	if source != "" {
		source = "-s " + source + " "
	}
	match := toPorts(r.f.Key.Protocol, comment(says), r.f.Key.Port, r.f.Key.LastPort)
	if r.f.Kind == model.NodePort && r.f.Key.Range() {
		r.line(p.table, p.ports, source+match+does)
		return
	}
	if r.f.Kind == model.NodePort {
		r.port(p, r.f.Key.Protocol, r.f.Key.Port, source+match+does)
		return
	}
	r.path(p, r.f.Key.Addr, p.levels(r.family), source+dest(r.f.Key.Addr)+" "+match+does)
}

// target emits the chains of a Frontend that forwards, and returns the name of the first.
func (r *frontend) target(verdict, local model.Verdict) string {
	if r.f.Kind == model.ClusterIP {
		name := "KUBE-SVC-" + r.hash("")
		r.chain(kindService, nat, name, r.pick.rules(r.f.Backends, r.marks())...)
		return name
	}
	name := "KUBE-EXT-" + r.hash("")
	var list []string
	if r.count {
		list = append(list, toLocalhost)
	}
	if r.f.LocalOnly {
		list = append(list, r.localOnly(verdict, local)...)
	} else {
		list = r.pick.rules(r.f.Backends, append(list, r.marks()...))
	}
	r.chain(kindExternal, nat, name, list...)
	if !r.f.Guarded {
		return name
	}
	guard := "KUBE-FW-" + r.hash("")
	if r.f.Kind == model.NodePort { // its ranges are not the load balancer's
		guard = "KUBE-FW-" + r.hash("nodeport")
	}
	var rules []string
	for _, s := range r.f.SourceRanges {
		if model.FamilyOf(s.Addr()) == r.family {
			rules = append(rules, sourceTest(s)+"-j "+name)
		}
	}
	r.chain(kindFirewall, nat, guard, rules...)
	return guard
}

// sourceTest is "-s 10.0.0.0/8 "; iptables-save does not print a test for /0.
func sourceTest(p netip.Prefix) string {
	if p.Bits() == 0 {
		return ""
	}
	return "-s " + p.String() + " "
}

// marks asks for masquerade: always, for what does not come from a pod, or never.
func (r *frontend) marks() []string {
	if r.f.Masquerade {
		return []string{"-j " + markMasq}
	}
	if r.f.Kind == model.ClusterIP {
		if m := outsideMarks(r.view, r.family); m != "" {
			return []string{m}
		}
	}
	return nil
}

// localOnly is externalTrafficPolicy Local: pods and the node itself may use the
// backends of the whole cluster, other clients only those of this node, and keep their source address.
func (r *frontend) localOnly(verdict, local model.Verdict) []string {
	var out []string
	pods, _ := fromPods(&r.view.Local, r.family)
	if verdict == model.Forward {
		whole := "KUBE-SVC-" + r.hash("external")
		r.chain(kindService, nat, whole, r.pick.rules(r.f.Backends, r.marks())...)
		for _, test := range pods {
			out = append(out, test+" -g "+whole)
		}
		out = append(out, fromLocal+" -j "+markMasq, fromLocal+" -g "+whole)
	} else {
		for _, test := range append(pods, fromLocal) {
			out = append(out, test+" -j RETURN")
		}
	}
	if local == model.Forward {
		here := "KUBE-SVL-" + r.hash("")
		r.chain(kindService, nat, here, r.pick.rules(r.f.LocalBackends, nil)...)
		out = append(out, "-j "+here)
	}
	return out
}

// refusals are the lines of the filter table for packets that nat left alone.
func (r *frontend) refusals(verdict, local model.Verdict) {
	f := r.f
	end, says := " -j DROP", r.name+saysNoneHere
	refuse := verdict == model.Reject || local == model.Reject
	if refuse {
		end, says = reject(f.Key.Protocol, r.family), r.name+saysNone
	}
	if f.Guarded {
		if refuse {
			for _, s := range f.SourceRanges {
				if model.FamilyOf(s.Addr()) == r.family && s.Bits() > 0 {
					r.leaf(guardExternal, s.String(), says, end)
				}
			}
		}
		r.leaf(guardExternal, "", r.name+saysSource, " -j DROP")
		return
	}
	if verdict == model.Forward && local == model.Forward {
		return
	}
	at := refuseExternal
	if f.Kind == model.ClusterIP {
		at = refuseCluster
	}
	r.leaf(at, "", says, end)
}

// hairpin: an endpoint that reaches itself must see another source, or it answers
// itself without the reverse translation. Only endpoints of this node can.
func (r *frontend) hairpin(list []model.Backend) {
	for i := range list {
		if b := &list[i]; b.Local {
			host := netip.PrefixFrom(b.Addr, b.Addr.BitLen()).String()
			r.path(hairpins, b.Addr, hairpins.levels(r.family), "-s "+host+" -d "+host+" "+masquerade)
		}
	}
}
