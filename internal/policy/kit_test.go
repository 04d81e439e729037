package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// decision is one case: a Service, its endpoints as text, and what each
// Frontend must become.
type decision struct {
	name string
	svc  model.Service // what is zero gets the values of service()
	eps  []string      // see endpoint(); "--" begins another slice
	self policy.Self   // zero: node n1 in zone a
	own  func(model.FrontendKey) bool
	want []string // one line a Frontend, see line()

	notes  []string // not looked at when nil
	health string   // "30000:2"
	flags  string   // "internal", "external", "internal external": NoLocal…
}

func (d *decision) run(t *testing.T) {
	t.Helper()
	svc := service(d.svc)
	self := d.self
	if self.Name == "" {
		self.Name, self.Zone = "n1", "a"
	}
	in := policy.Inputs{Service: &svc, Slices: sliceSet(svc.Key, svc.Ports, d.eps), Node: self, Owns: d.own}
	res := policy.Frontends(in)
	var got, notes []string
	for i := range res.Frontends {
		got = append(got, line(&res.Frontends[i]))
	}
	if diff := cmp.Diff(strings.Join(d.want, "\n"), strings.Join(got, "\n")); diff != "" {
		t.Errorf("frontends (-want +got):\n%s", diff)
	}
	for _, n := range res.Notes {
		notes = append(notes, n.Text)
	}
	if d.notes != nil && !slices.Equal(d.notes, notes) {
		t.Errorf("notes %q, want %q", notes, d.notes)
	}
	if h := health(res.Health); h != d.health {
		t.Errorf("health check %q, want %q", h, d.health)
	}
	if f := flags(&res); f != d.flags {
		t.Errorf("no local endpoints for %q, want %q", f, d.flags)
	}
}

func runAll(t *testing.T, list []decision) {
	t.Helper()
	for i := range list {
		t.Run(list[i].name, list[i].run)
	}
}

func service(s model.Service) model.Service {
	s.Proxied = true
	if s.Key == (model.ServiceKey{}) {
		s.Key = model.ServiceKey{Namespace: "default", Name: "web"}
	}
	if s.ClusterIPs == nil {
		s.ClusterIPs = addrs("10.96.0.1")
	}
	if s.Ports == nil {
		s.Ports = []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}
	}
	return s
}

// nodePort is the default port with a NodePort.
func nodePort() []model.ServicePort {
	return []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80, NodePort: 30080}}
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// sliceSet builds slices: one of each family unless "--" begins another.
func sliceSet(svc model.ServiceKey, ports []model.ServicePort, eps []string) (out []*model.Slice) {
	fresh := func(fam model.Family) *model.Slice {
		sl := &model.Slice{Service: svc, Family: fam,
			Key: model.SliceKey{Namespace: svc.Namespace, Name: fmt.Sprintf("%s-%02d", svc.Name, len(out))}}
		for _, p := range ports {
			sl.Ports = append(sl.Ports, model.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port + 8000})
		}
		out = append(out, sl)
		return sl
	}
	open := map[model.Family]*model.Slice{}
	for _, text := range eps {
		if text == "--" {
			open = map[model.Family]*model.Slice{}
			continue
		}
		e := endpoint(text)
		fam := model.FamilyOf(e.Addr)
		if open[fam] == nil {
			open[fam] = fresh(fam)
		}
		open[fam].Endpoints = append(open[fam].Endpoints, e)
	}
	return out
}

// endpoint reads "10.1.0.1@n1 state hz:a,b hn:n1 host:web-0"; states are ready (the
// default), unready, draining (serves while terminating), dying (does not), and
// published (terminating, but publishNotReadyAddresses).
func endpoint(text string) model.Endpoint {
	f := strings.Fields(text)
	addr, node, _ := strings.Cut(f[0], "@")
	e := model.Endpoint{Addr: netip.MustParseAddr(addr), Node: node, Ready: true, Serving: true}
	for _, w := range f[1:] {
		kind, list, _ := strings.Cut(w, ":")
		switch kind {
		case "ready":
		case "unready":
			e.Ready, e.Serving = false, false
		case "draining":
			e.Ready, e.Terminating = false, true
		case "dying":
			e.Ready, e.Serving, e.Terminating = false, false, true
		case "published":
			e.Serving, e.Terminating = false, true
		case "host":
			e.Hostname = list
		case "hz", "hn":
			if e.Hints == nil {
				e.Hints = &model.Hints{}
			}
			if kind == "hz" {
				e.Hints.Zones = strings.Split(list, ",")
			} else {
				e.Hints.Nodes = strings.Split(list, ",")
			}
		default:
			panic("test text: " + w)
		}
	}
	return e
}

// line prints a Frontend: "ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* ..."
// with * for local and xN for a weight; then what else it carries.
func line(f *model.Frontend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s%s", f.Kind, f.Key, f.Verdict, list(f.Backends))
	if f.LocalOnly {
		fmt.Fprintf(&b, " | outside %s%s", f.LocalVerdict, list(f.LocalBackends))
	}
	if f.Masquerade {
		b.WriteString(" | masquerade")
	}
	if f.AffinityTimeout != 0 {
		fmt.Fprintf(&b, " | affinity %s", f.AffinityTimeout)
	}
	if f.IPVSScheduler != "" {
		b.WriteString(" | scheduler " + f.IPVSScheduler)
	}
	if f.ConsistentHash {
		b.WriteString(" | hash")
	}
	if f.Guarded {
		fmt.Fprintf(&b, " | only %v", f.SourceRanges)
	}
	for i, o := range f.Others {
		if i == 0 {
			b.WriteString(" | others")
		}
		fmt.Fprintf(&b, " %s", o.Addr)
		if o.Serving {
			b.WriteString("(serving)")
		}
	}
	return b.String()
}

func list(backends []model.Backend) string {
	var b strings.Builder
	for _, x := range backends {
		fmt.Fprintf(&b, " %s", x.AddrPort())
		if x.Weight != 1 {
			fmt.Fprintf(&b, "x%d", x.Weight)
		}
		if x.Local {
			b.WriteString("*")
		}
	}
	return b.String()
}

func health(h *policy.HealthCheck) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", h.Port, h.Local)
}

func flags(r *policy.Result) string {
	var out []string
	if r.NoLocalInternal {
		out = append(out, "internal")
	}
	if r.NoLocalExternal {
		out = append(out, "external")
	}
	return strings.Join(out, " ")
}
