package k8s

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// listener is a sink that records the events.
type listener struct {
	mu       sync.Mutex
	services map[string]*model.Service
	slices   map[string]*model.Slice
	node     *model.Node
	cidrs    *model.ServiceCIDRs
	// badRanges is how many problems came with cidrs.
	badRanges int
	problems  []string // of the connection, as they stand now
	kind      model.ProblemKind
	log       []string
	triggers  map[string]time.Time
	changed   chan struct{}
	source    *Source
}

func (l *listener) put(e model.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Service != nil:
		keep(l.services, e.Service.Key.String(), e.Service.Value)
		l.log = append(l.log, "service "+e.Service.Key.Name)
	case e.Slice != nil:
		keep(l.slices, e.Slice.Key.String(), e.Slice.Value)
		l.log = append(l.log, "slice "+e.Slice.Key.Name)
		l.triggers[e.Slice.Key.Name] = e.Trigger
	case e.Node != nil:
		l.node = e.Node.Value
	case e.CIDRs != nil:
		l.cidrs, l.badRanges = e.CIDRs, len(e.Problems)
	case e.Synced != "":
		l.log = append(l.log, "synced "+e.Synced)
	case e.Listed != "":
		l.log = append(l.log, "listed "+e.Listed)
	case e.Origin == origin:
		l.problems = nil
		for _, p := range e.Problems {
			l.problems, l.kind = append(l.problems, p.String()), p.Kind
		}
	}
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func keep[V any](m map[string]*V, key string, v *V) {
	if v == nil {
		delete(m, key)
		return
	}
	m[key] = v
}

func (l *listener) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	poll := time.NewTicker(20 * time.Millisecond) // for conditions that no event reports
	defer poll.Stop()
	for {
		l.mu.Lock()
		done := ok()
		log, problems := slices.Clone(l.log), l.problems
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-l.changed:
		case <-poll.C:
		case <-deadline:
			t.Fatalf("never came: %s; log %q, problems %q, status %+v", what, log, problems, l.source.Status())
		}
	}
}

// see runs fn while no event is delivered.
func (l *listener) see(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
}

// sinceThen returns the events after the first n.
func (l *listener) sinceThen(n int) (log []string) {
	l.see(func() { log = slices.Clone(l.log[n:]) })
	return log
}

func (l *listener) told() int { return len(l.sinceThen(0)) }

func (l *listener) listed() bool { return slices.Contains(l.log, "listed "+Name) }

func (l *listener) synced() bool { return slices.Contains(l.log, "synced "+Name) }

// start runs a Source against f until the test ends.
func start(t *testing.T, f *fakeAPI, edit func(*Config)) *listener {
	t.Helper()
	c := Config{NodeName: "n1", QPS: -1, Log: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&c)
	}
	if c.Kubeconfig == "" && c.Master == "" {
		c.Kubeconfig = f.kubeconfig("", "")
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{
		services: map[string]*model.Service{}, slices: map[string]*model.Slice{},
		triggers: map[string]time.Time{}, changed: make(chan struct{}, 1), source: s,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l.put) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("Run does not end")
		}
	})
	return l
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "0c7b3a8e-7d0e-4a3b-9d0b-1f2e3d4c5b6a"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func slice(name string, addresses ...string) *discoveryv1.EndpointSlice {
	port := int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func populate(f *fakeAPI) {
	f.put("services", service("web", "10.96.0.1"))
	f.put("endpointslices", slice("web-1", "10.0.0.1"))
	f.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	f.put("servicecidrs", &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}})
}

// both runs a test against a server with streaming lists and one without.
func both(t *testing.T, test func(*testing.T, *fakeAPI)) {
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("streaming=%t", streaming), func(t *testing.T) {
			f := newFakeAPI(t)
			f.streaming = streaming
			populate(f)
			test(t, f)
		})
	}
}

func TestListThenWatch(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		l := start(t, f, nil)
		l.until(t, "synced", l.synced)
		l.see(func() {
			if last := l.log[len(l.log)-1]; last != "synced k8s" || l.services["default/web"] == nil ||
				len(l.slices["default/web-1"].Endpoints) != 1 || l.node == nil || l.cidrs == nil {
				t.Errorf("log %q, node %v, ranges %v", l.log, l.node, l.cidrs)
			}
		})
		if s := l.source.Status(); !s.Synced || !s.Connected || s.LastHeard.IsZero() || s.Err != "" {
			t.Errorf("status %+v", s)
		}
		f.put("endpointslices", slice("web-1", "10.0.0.1", "10.0.0.2"))
		l.until(t, "second endpoint", func() bool { return len(l.slices["default/web-1"].Endpoints) == 2 })
		f.put("services", service("db", "10.96.0.2"))
		l.until(t, "new Service", func() bool { return l.services["default/db"] != nil })
		f.del("services", service("web", ""))
		l.until(t, "Service gone", func() bool { return l.services["default/web"] == nil })
		f.put("services", service("web", "10.96.0.1"))
		l.until(t, "Service as it was", func() bool { return l.services["default/web"] != nil })
		f.put("servicecidrs", &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"fd00::/112", "bad"}}})
		l.until(t, "the ranges of both, and what is wrong", func() bool { return len(l.cidrs.Prefixes) == 2 && l.badRanges == 1 })
	})
}

// TestStatusOfSeveralResources: the source is as fresh as the resource that has been silent for longest. It reports the first
// reason why one is not connected, and since when that state holds. An optional resource affects none of that.
func TestStatusOfSeveralResources(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	tr := &tracker{sink: func(model.Event) {}, now: func() time.Time { return now }, since: now, server: "s"}
	resources := []*resourceState{tr.add("servicecidrs", optional), tr.add("services", essential), tr.add("endpointslices", essential), tr.add("nodes", important)}
	start := now
	for _, r := range resources {
		tr.answered(r, nil)
		now = now.Add(time.Minute)
	}
	if s := tr.status(); !s.Connected || !s.LastHeard.Equal(start.Add(time.Minute)) || !s.Since.Equal(start.Add(3*time.Minute)) || s.Err != "" {
		t.Errorf("all answered: %+v", s)
	}
	for _, r := range resources {
		tr.answered(r, errNoAnswer)
		now = now.Add(time.Minute)
		if s := tr.status(); s.Connected != r.optional {
			t.Errorf("after %s: %+v", r.name, s)
		}
		if r.name == "services" {
			r.err = "the first"
		}
	}
	if s := tr.status(); s.Err != "the first" || !s.Since.Equal(start.Add(5*time.Minute)) {
		t.Errorf("none answered: %+v", s)
	}
}

// An update that changes nothing for a proxy must not reach the engine.
func TestNothingNew(t *testing.T) {
	f := newFakeAPI(t)
	populate(f)
	l := start(t, f, nil)
	l.until(t, "synced", l.synced)
	n := l.told()
	same := service("web", "10.96.0.1")
	same.Annotations = map[string]string{"example.com/touched": "yes"}
	same.Spec.Selector = map[string]string{"app": "web"}
	f.put("services", same)
	f.put("services", service("other", "10.96.0.3"))
	l.until(t, "what came after it", func() bool { return l.services["default/other"] != nil })
	if got := l.sinceThen(n); !slices.Equal(got, []string{"service other"}) {
		t.Errorf("got %q", got)
	}
}

func TestSelectors(t *testing.T) {
	for headless, want := range map[bool][]string{
		false: {
			"services?labelSelector=%21service.kubernetes.io%2Fservice-proxy-name fieldSelector=spec.clusterIP%21%3DNone",
			"endpointslices?labelSelector=kubernetes.io%2Fservice-name%2C%21service.kubernetes.io%2Fservice-proxy-name%2C%21service.kubernetes.io%2Fheadless",
			"nodes?fieldSelector=metadata.name%3Dn1", "servicecidrs?",
		},
		true: {"services?", "endpointslices?labelSelector=kubernetes.io%2Fservice-name", "nodes?fieldSelector=metadata.name%3Dn1", "servicecidrs?"},
	} {
		f := newFakeAPI(t)
		populate(f)
		l := start(t, f, func(c *Config) { c.Headless = headless })
		l.until(t, "synced", l.synced)
		f.do(func() {
			for _, w := range want {
				resource, selectors, _ := strings.Cut(w, "?")
				for _, q := range f.queries {
					rest, mine := strings.CutPrefix(q, resource+"?")
					if !mine {
						continue
					}
					if strings.Count(rest, "Selector=") != len(strings.Fields(selectors)) {
						t.Errorf("headless %t: %s has other selectors than %q", headless, q, selectors)
					}
					for s := range strings.FieldsSeq(selectors) {
						if !strings.Contains(rest, s) {
							t.Errorf("headless %t: %s is without %s", headless, q, s)
						}
					}
				}
			}
		})
	}
}

// Only a change from after the start counts for latency.
func TestTrigger(t *testing.T) {
	f := newFakeAPI(t)
	populate(f)
	stamped := func(name string, at time.Time) *discoveryv1.EndpointSlice {
		s := slice(name, "10.0.0.9")
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at.Format(time.RFC3339Nano)}
		return s
	}
	f.put("endpointslices", stamped("old", time.Now().Add(-time.Hour)))
	l := start(t, f, nil)
	l.until(t, "synced", l.synced)
	at := time.Now().Add(time.Second).Truncate(time.Millisecond)
	f.put("endpointslices", stamped("fresh", at))
	l.until(t, "the change", func() bool { return l.slices["default/fresh"] != nil })
	l.see(func() {
		if !l.triggers["old"].IsZero() || !l.triggers["fresh"].Equal(at) {
			t.Errorf("got %v", l.triggers)
		}
	})
}
