package app

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// row reads one row of the metrics.
func (w *watched) row(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(series(t, []http.Handler{w.a.metrics.Handler()})[name[:strings.IndexByte(name, '{')]]) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "no row"
}

// TestRowsByFamilyAreTrue: a change of an IPv4 EndpointSlice is not one of IPv6, and a
// Service counts as without local endpoints in the family where it has none.
func TestRowsByFamilyAreTrue(t *testing.T) {
	w := newWatched(t)
	wants := func(when string, rows map[string]string) {
		t.Helper()
		for name, want := range rows {
			if got := w.row(t, name); got != want {
				t.Errorf("%s: %s = %s, want %s", when, name, got, want)
			}
		}
	}
	const noLocal, programmed, took = "kubeproxy_sync_proxy_rules_no_local_endpoints_total", "kubeproxy_network_programming_duration_seconds_count", "kubeproxy_sync_proxy_rules_duration_seconds_count"
	wants("at start", map[string]string{
		noLocal + `{ip_family="IPv4",traffic_policy="internal"}`: "0", noLocal + `{ip_family="IPv6",traffic_policy="external"}`: "0"})
	changed := w.now.Add(-time.Second)
	key := model.ServiceKey{Namespace: "shop", Name: "web"}
	w.done(engine.Turn{Complete: true, SliceEvents: 1, Triggers: []engine.Trigger{{Changed: changed, Received: changed, Family: model.IPv4}},
		Decided: []engine.Decided{{Key: key, Result: policy.Result{NoLocalExternal: true, NoLocalFamilies: []model.Family{model.IPv4}}}}})
	wants("one IPv4 slice", map[string]string{
		noLocal + `{ip_family="IPv4",traffic_policy="external"}`: "1", noLocal + `{ip_family="IPv6",traffic_policy="external"}`: "0",
		noLocal + `{ip_family="IPv4",traffic_policy="internal"}`: "0"})
	for name, want := range map[string][2]string{programmed: {"1", "0"}, took: {"1", "0"}} {
		for i, family := range []string{"IPv4", "IPv6"} {
			if got := w.histogramCount(t, name, family); got != want[i] {
				t.Errorf("%s of %s is %s, want %s", name, family, got, want[i])
			}
		}
	}
	w.done(engine.Turn{Complete: true, ServiceEvents: 1, Triggers: []engine.Trigger{{Changed: changed}},
		Decided: []engine.Decided{{Key: key}}})
	if a, b := w.histogramCount(t, took, "IPv4"), w.histogramCount(t, took, "IPv6"); a != "2" || b != "1" {
		t.Errorf("after a change of a Service: %s and %s syncs", a, b)
	}
	wants("policy gone", map[string]string{noLocal + `{ip_family="IPv4",traffic_policy="external"}`: "0"})
}

func (w *watched) histogramCount(t *testing.T, name, family string) string {
	t.Helper()
	rows := series(t, []http.Handler{w.a.metrics.Handler()})[strings.TrimSuffix(name, "_count")]
	for line := range strings.Lines(rows) {
		if rest, ok := strings.CutPrefix(line, name+`{ip_family="`+family+`"} `); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "no row"
}

// TestDriftKinds: what somebody else changed is counted by what it is, in every mode's
// own names.
func TestDriftKinds(t *testing.T) {
	for name, want := range map[string]string{
		"table ip fairlead": "table", "chain ip fairlead lb-4": "chain", "set ip fairlead eps": "set", "rules ip fairlead dispatch": "rule",
		"rule nat KUBE-SERVICES -j X (IPv4)": "rule", "services 10.96.0.1:80/UDP": "element", "foreign element 01 of ip fairlead eps": "element", "": "other",
	} {
		w := newWatched(t)
		w.a.driver = oneName{name: name}
		w.done(engine.Turn{Complete: true, Drift: []engine.Drifted{{}}})
		for _, kind := range []string{"table", "chain", "rule", "set", "element", "other"} {
			n := "0"
			if kind == want {
				n = "1"
			}
			if got := w.row(t, `fairlead_drift_repaired_total{kind="`+kind+`"}`); got != n {
				t.Errorf("%q counts %s times as %s, want %s", name, got, kind, n)
			}
		}
	}
}

// TestRebuildReasons: a rebuild is counted by its reason, in the words of the data planes.
func TestRebuildReasons(t *testing.T) {
	for why, want := range map[string]string{
		"a set is full": "full", "another layout": "layout", "the table is dormant": "declaration", "the hook of chain prerouting": "declaration",
		"the declaration of set eps-4": "declaration", "the declaration of a map of clients": "declaration", "distrust": "distrust", "": "other",
	} {
		w := newWatched(t)
		w.done(engine.Turn{Complete: true, Rebuilt: []engine.Rebuilt{{Why: why}}})
		for _, reason := range []string{"full", "layout", "declaration", "distrust", "other"} {
			n := "0"
			if reason == want {
				n = "1"
			}
			if got := w.row(t, `fairlead_rebuilds_total{reason="`+reason+`"}`); got != n {
				t.Errorf("%q counts %s times as %s, want %s", why, got, reason, n)
			}
		}
	}
}

// oneName gives every object one name; without one, the key's own.
type oneName struct {
	dataplane.Driver
	name string
}

func (d oneName) KeyString(k dataplane.Key) string {
	if d.name == "" {
		return k.String()
	}
	return d.name
}

// TestProblemKinds: each kind of object has its row, and what can be read no more is a
// source, not somebody's object.
func TestProblemKinds(t *testing.T) {
	w := newWatched(t)
	w.turn(&engine.Turn{Waits: true, Problems: []model.Problem{
		{Object: "Service shop/web", Reason: "x"}, {Object: "Service shop/pay", Reason: "x"}, {Object: "EndpointSlice shop/web-1", Reason: "x"},
		{Object: "file web.yaml:12", Reason: "x"}, {Object: "Node a", Reason: "x"}, {Object: "ServiceCIDR a", Reason: "x"},
		{Kind: model.Unavailable, Object: "API server", Reason: "x"}, {Object: "weather", Reason: "x"}, {Object: "moon", Reason: "x"},
	}})
	for kind, want := range map[string]string{"service": "2", "endpointslice": "1", "file": "1", "node": "1", "servicecidr": "1", "source": "1", "other": "2"} {
		if got := w.row(t, `fairlead_problems{kind="`+kind+`"}`); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	w.turn(&engine.Turn{Waits: true, Well: []string{"Service shop/web", "API server", "moon"}})
	for kind, want := range map[string]string{"service": "1", "source": "0", "other": "1"} {
		if got := w.row(t, `fairlead_problems{kind="`+kind+`"}`); got != want {
			t.Errorf("%s, after some are well: %s, want %s", kind, got, want)
		}
	}
}

// TestChangesPending: a change is pending from its arrival until a turn has committed it.
func TestChangesPending(t *testing.T) {
	w := newWatched(t)
	pending := func() string {
		return strings.TrimSpace(series(t, []http.Handler{w.a.metrics.Handler()})["kubeproxy_sync_proxy_rules_service_changes_pending"])
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "0"},
		{func() { w.change("a"); w.change("b"); w.change("a") }, "2"},
		{func() { w.a.mail.Drain() }, "2"},
		{func() { w.done(engine.Turn{Complete: true, Err: errors.New("x")}) }, "2"},
		{func() { w.done(engine.Turn{Complete: true}) }, "0"},
	} {
		step.do()
		if got := pending(); !strings.HasSuffix(got, " "+step.want) {
			t.Errorf("got %q, want %s", got, step.want)
		}
	}
}
