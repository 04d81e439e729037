package file

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// FuzzManifest feeds two texts to one file, one after the other. Whatever they
// are, what was delivered must be well formed, equal to what a fresh reader makes
// of the second text if that has no mistake, and reading it again must deliver
// nothing.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		"", "---\n", "{", "[]", "a: &a [*a]", "kind: List\nitems: [{}]",
		service("a", "10.96.0.1") + "---\n" + slice("a-1", "a", "10.0.0.1"),
		slice("a-1", "a", "fd00::1", "10.0.0.300", "10.0.0.1", "10.0.0.1"),
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"}}]}{"kind":1}`,
		"apiVersion: v1\nkind: Service\nmetadata: {name: x, annotations: {fairlead.dev/weights: \"a=1\"}}\nspec: {type: NodePort, ports: [{port: -1}]}",
	} {
		f.Add(seed, seed)
		f.Add(service("a", "10.96.0.1"), seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		l := newListener()
		fold := feed(l, first)
		m := fold.files["f"]
		now := time.Now()
		fold.read(m, []byte(second), now, isClosed)
		fold.read(m, []byte(second), now, isWhole) // accept content that was held back, too
		fold.flush(now, l.put)
		l.check(t)
		n := l.events
		fold.read(m, []byte(second), now, isWhole)
		fold.flush(now, l.put)
		if l.events != n {
			t.Errorf("reading the same again gave %d events", l.events-n)
		}
		if len(m.problems) > 0 || len(l.problems) > 0 {
			return // the last good content may have stayed
		}
		fresh := newListener()
		feed(fresh, second)
		if len(fresh.services) != len(l.services) || len(fresh.slices) != len(l.slices) {
			t.Fatalf("%d services, %d slices; read afresh: %d, %d",
				len(l.services), len(l.slices), len(fresh.services), len(fresh.slices))
		}
		for name, s := range fresh.services {
			if !s.Equal(l.services[name]) {
				t.Errorf("%s: %+v; read afresh: %+v", name, l.services[name], s)
			}
		}
		for name, s := range fresh.slices {
			if !s.Equal(l.slices[name]) {
				t.Errorf("%s: %+v; read afresh: %+v", name, l.slices[name], s)
			}
		}
	})
}

func feed(l *listener, text string) *folder {
	fold := newFolder(Config{Dir: "/nonexistent", Headless: true, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
	m := &manifest{name: "f"}
	fold.files["f"] = m
	fold.read(m, []byte(text), time.Now(), isWhole)
	fold.flush(time.Now(), l.put)
	return fold
}

// check reports whether what was delivered is what model promises.
func (l *listener) check(t *testing.T) {
	for _, s := range l.services {
		external := slices.DeleteFunc(slices.Clone(s.ExternalIPs), func(a netip.Addr) bool { return a == netip.Addr{} }) // places of refused ones
		for _, a := range append(append(s.ClusterIPs, external...), s.LoadBalancerIPs...) {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("%s: address %v", s.Key, a)
			}
		}
		if len(s.ClusterIPs) > 2 || (len(s.ClusterIPs) == 2 && s.ClusterIPs[0].Is4() == s.ClusterIPs[1].Is4()) {
			t.Errorf("%s: cluster IPs %v", s.Key, s.ClusterIPs)
		}
		for _, p := range s.Ports {
			if p.Port == 0 || (p.Protocol != model.TCP && p.Protocol != model.UDP && p.Protocol != model.SCTP) {
				t.Errorf("%s: port %+v", s.Key, p)
			}
		}
		for _, p := range append(s.SourceRanges, s.Extras.NodePortRanges...) {
			if p != p.Masked() {
				t.Errorf("%s: range %v", s.Key, p)
			}
		}
	}
	for _, s := range l.slices {
		for _, p := range s.Ports {
			if p.Port == 0 {
				t.Errorf("%s: port 0", s.Key)
			}
		}
		for _, e := range s.Endpoints {
			if !e.Addr.IsValid() || e.Addr.Is4In6() || model.FamilyOf(e.Addr) != s.Family {
				t.Errorf("%s: endpoint %v", s.Key, e.Addr)
			}
		}
	}
}
