package metrics

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead/fairlead/internal/model"
)

var update = flag.Bool("update", false, "write the golden files")

var start = time.Unix(1_700_000_000, 0)

func newMetrics(mode string, families ...model.Family) *Metrics {
	return New(Params{
		Mode: mode, Families: families, Version: "v0.0.0-test", Commit: "abc",
		Gates: map[string]bool{"NFTablesProxyMode": true}, Now: func() time.Time { return start.Add(5 * time.Second) },
		Waiting: func() (int, int) { return 1, 2 },
	})
}

// TestOneFamilyCountsAlone: what is about one family is not counted in the other.
func TestOneFamilyCountsAlone(t *testing.T) {
	m := newMetrics("nftables", model.IPv4, model.IPv6)
	before := scrape(t, m.Handler())
	m.Programmed(model.IPv6, start.Add(-time.Second), time.Time{}, start)
	m.SyncDone(&SyncReport{Families: []model.Family{model.IPv6}, Done: start, Total: time.Millisecond})
	m.Queued(model.IPv6, start)
	line := func(text, name string) string {
		_, rest, _ := strings.Cut(text, "\n"+name)
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	for name, moved := range map[string]bool{
		`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}`: false, `kubeproxy_network_programming_duration_seconds_count{ip_family="IPv6"}`: true,
		`kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"}`: false, `kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"}`: true,
		`kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}`: false, `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"}`: true,
	} {
		was, is := line(before, name), line(scrape(t, m.Handler()), name)
		if moved && is == "" || (was != is) != moved {
			t.Errorf("%q became %q", was, is)
		}
	}
}

// exercise calls every method, so that every row has a sample.
func exercise(m *Metrics) {
	r := &SyncReport{Done: start, Total: 3 * time.Millisecond, Operations: 7, Reads: 2, Conflicts: 1}
	for p := range r.Phases {
		r.Phases[p] = 20 * time.Microsecond
	}
	m.SyncDone(r)
	r.Full = true
	m.SyncDone(r)
	m.SyncDone(&SyncReport{Result: Failed, Families: []model.Family{model.IPv4}, Done: start.Add(time.Hour)})
	m.Programmed(0, start.Add(-2*time.Millisecond), start.Add(-time.Millisecond), start)
	m.Queued(0, start)
	m.ChangesSeen(3, 4)
	m.Sizes(10, 100)
	m.Pending(5)
	m.Quarantined(6)
	m.DriftRepaired("set", 2)
	m.DriftRepaired("no such kind", 3)
	m.Problems(map[string]int{"endpointslice": 2, "no such kind": 9, "nor this": 1})
	m.NoLocalEndpoints(true, model.IPv4, 2)
	m.NoLocalEndpoints(false, model.IPv6, 3)
	m.Conntrack(model.IPv4, time.Millisecond, 12)
	m.RestoreFailed(model.IPv4, true)
	m.IPTablesRules("nat", model.IPv4, 100, 3)
	m.IPTablesCounters(func() (uint64, error) { return 7, nil }, func() (uint64, error) { return 8, nil })
	m.AffinityCounters(func() (uint64, error) { return 9, nil }, func() (uint64, error) { return 1, nil })
	m.ByService(func() Traffic {
		return Traffic{Refusals: true, Services: []ServiceTraffic{{Namespace: "shop", Service: "web", Port: "http", Endpoints: []EndpointTraffic{{Endpoint: "10.1.0.1:80"}}}}}
	})
	m.Watch("services", true, start)
	m.Watch("nodes", false, time.Time{})
	m.Healthz(200)
	m.Livez(503)
	m.Pinged()
	m.RESTLatency().Observe(context.Background(), "GET", url.URL{Host: "api:6443"}, time.Millisecond)
	m.RESTResult().Increment(context.Background(), "200", "GET", "api:6443")
	m.LocalListeners(2)
	m.LocalListenFailed()
	m.LocalRejected(model.TCP)
}

// contract is one line for each metric that a scraper of this mode sees: name,
// type, label names, buckets.
func contract(t *testing.T, m *Metrics) string {
	t.Helper()
	all, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue // not ours, and they follow the Go release
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		fmt.Fprintf(&b, "%s %s {%s}", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ","))
		if h := f.Metric[0].Histogram; h != nil {
			b.WriteString(" le")
			for _, bucket := range h.Bucket {
				fmt.Fprintf(&b, " %g", bucket.GetUpperBound())
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestContract(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ipvs", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			m := newMetrics(mode, model.IPv4, model.IPv6)
			exercise(m)
			got := contract(t, m)
			path := "testdata/" + mode + ".golden"
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
				t.Errorf("names are a contract with every scraper; -golden +got:\n%s", d)
			}
		})
	}
}

// TestRowsOfKubeProxy holds the table against kube-proxy's own list for the
// mode (taken from its source, pkg/proxy/metrics at v1.36.3).
func TestRowsOfKubeProxy(t *testing.T) {
	core := []string{
		"sync_proxy_rules_duration_seconds", "sync_proxy_rules_last_queued_timestamp_seconds", "sync_proxy_rules_last_timestamp_seconds",
		"sync_proxy_rules_endpoint_changes_pending", "sync_proxy_rules_endpoint_changes_total",
		"sync_proxy_rules_service_changes_pending", "sync_proxy_rules_service_changes_total",
		"proxy_healthz_total", "proxy_livez_total", "network_programming_duration_seconds", "sync_proxy_rules_no_local_endpoints_total",
	}
	conntrack := []string{"conntrack_reconciler_sync_duration_seconds", "conntrack_reconciler_deleted_entries_total"}
	both := []string{"sync_full_proxy_rules_duration_seconds", "sync_partial_proxy_rules_duration_seconds"}
	// of 1.37, behind a gate there (KEP-6032)
	localhost := []string{"nftables_localhost_nodeport_listeners", "nftables_localhost_nodeport_listener_creation_failures_total",
		"nftables_localhost_nodeport_rejected_packets_total"}
	for mode, extra := range map[string][]string{
		"nftables": slices.Concat(both, conntrack, localhost, []string{"sync_proxy_rules_nftables_sync_failures_total"} /* not its cleanup failures: our deletions are part of the sync */),
		"ipvs":     slices.Concat(conntrack, []string{"sync_proxy_rules_iptables_restore_failures_total"}),
		"iptables": slices.Concat(both, conntrack, []string{
			"sync_proxy_rules_iptables_restore_failures_total", "sync_proxy_rules_iptables_partial_restore_failures_total",
			"sync_proxy_rules_iptables_total", "sync_proxy_rules_iptables_last",
			"iptables_ct_state_invalid_dropped_packets_total", "iptables_localhost_nodeports_accepted_packets_total",
		}),
	} {
		want := slices.Sorted(slices.Values(slices.Concat(core, extra)))
		var got []string
		for _, r := range rows() {
			if name, ok := strings.CutPrefix(r.name, "kubeproxy_"); ok && r.in(mode) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -kube-proxy +ours:\n%s", mode, d)
		}
	}
}

func TestValues(t *testing.T) {
	m := newMetrics("nftables", model.IPv4, model.IPv6)
	exercise(m)
	all, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		for _, s := range f.Metric {
			got[sampleName(f, s)] = sampleValue(s)
		}
	}
	for name, want := range map[string]float64{
		"kubeproxy_sync_proxy_rules_duration_seconds{IPv4}":                  3, // count
		"kubeproxy_sync_proxy_rules_duration_seconds{IPv6}":                  2,
		"kubeproxy_sync_full_proxy_rules_duration_seconds{IPv6}":             1,
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds{IPv4}":            1_700_000_000, // the failed sync does not count
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total{IPv4}":      1,
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total{IPv6}":      0,
		"kubeproxy_network_programming_duration_seconds{IPv6}":               1,
		"kubeproxy_sync_proxy_rules_endpoint_changes_total{}":                4,
		"kubeproxy_sync_proxy_rules_service_changes_pending{}":               1,
		"kubeproxy_sync_proxy_rules_no_local_endpoints_total{IPv4,external}": 2,
		"kubeproxy_conntrack_reconciler_deleted_entries_total{IPv4}":         12,
		"kubeproxy_proxy_livez_total{503}":                                   1,
		"fairlead_syncs_total{ok}":                                           2,
		"fairlead_syncs_total{failed}":                                       1,
		"fairlead_operations_total{}":                                        14,
		"fairlead_kernel_reads_total{}":                                      4,
		"fairlead_conflicts_total{}":                                         2,
		"fairlead_sync_phase_duration_seconds{apply}":                        2,
		"fairlead_drift_repaired_total{set}":                                 2,
		"fairlead_drift_repaired_total{other}":                               3,
		"fairlead_problems{other}":                                           10,
		"fairlead_problems{endpointslice}":                                   2,
		"fairlead_services{}":                                                10,
		"fairlead_endpoints{}":                                               100,
		"fairlead_quarantined_objects{}":                                     6,
		"fairlead_watch_connected{services}":                                 1,
		"fairlead_watch_connected{nodes}":                                    0,
		"fairlead_watch_staleness_seconds{services}":                         5,
		"kubernetes_feature_enabled{NFTablesProxyMode,}":                     1,
		"rest_client_requests_total{200,api:6443,GET}":                       1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s = %g (there: %t), want %g", name, v, ok, want)
		}
	}
	if _, ok := got["fairlead_watch_staleness_seconds{nodes}"]; ok {
		t.Error("staleness of a source that never heard anything")
	}
}

func sampleName(f *dto.MetricFamily, s *dto.Metric) string {
	var values []string
	for _, l := range s.Label {
		values = append(values, l.GetValue())
	}
	return f.GetName() + "{" + strings.Join(values, ",") + "}"
}

func sampleValue(s *dto.Metric) float64 {
	switch {
	case s.Histogram != nil:
		return float64(s.Histogram.GetSampleCount())
	case s.Counter != nil:
		return s.Counter.GetValue()
	}
	return s.Gauge.GetValue()
}

func TestOneFamilyShowsNoRowsOfTheOther(t *testing.T) {
	m := newMetrics("nftables", model.IPv4)
	m.SyncDone(&SyncReport{Done: start})
	m.SyncDone(&SyncReport{Families: []model.Family{model.IPv6}, Result: Failed, Done: start}) // must not panic
	m.Conntrack(model.IPv6, time.Second, 1)
	if text := scrape(t, m.Handler()); strings.Contains(text, "IPv6") {
		t.Errorf("rows of a family that is not in use:\n%s", text)
	}
}

func TestNoTimestampBeforeTheFirstSync(t *testing.T) {
	text := scrape(t, newMetrics("nftables", model.IPv4).Handler())
	if strings.Contains(text, "last_timestamp_seconds{") {
		t.Error("a timestamp of 0 sets off every alert on its age")
	}
}

// TestNoLocalRowsFromTheStart: an alert must be able to tell none from not known.
func TestNoLocalRowsFromTheStart(t *testing.T) {
	text := scrape(t, newMetrics("nftables", model.IPv4, model.IPv6).Handler())
	for _, labels := range []string{"IPv4\",traffic_policy=\"internal", "IPv4\",traffic_policy=\"external", "IPv6\",traffic_policy=\"internal", "IPv6\",traffic_policy=\"external"} {
		if row := "\nkubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family=\"" + labels + "\"} 0\n"; !strings.Contains(text, row) {
			t.Errorf("no row %q", strings.TrimSpace(row))
		}
	}
}

// TestCountersOfTheKernel are read at each scrape, have no row while nobody counts
// or while they cannot be read, and take nothing else with them.
func TestCountersOfTheKernel(t *testing.T) {
	const invalid, local = "\nkubeproxy_iptables_ct_state_invalid_dropped_packets_total ", "\nkubeproxy_iptables_localhost_nodeports_accepted_packets_total "
	m := newMetrics("iptables", model.IPv4)
	if text := scrape(t, m.Handler()); strings.Contains(text, invalid) || strings.Contains(text, local) {
		t.Error("rows before anybody counts")
	}
	n := uint64(0)
	m.IPTablesCounters(func() (uint64, error) { n++; return n, nil }, func() (uint64, error) { return 0, errors.New("no such counter") })
	for _, want := range []string{"1", "2"} {
		text := scrape(t, m.Handler())
		if !strings.Contains(text, invalid+want+"\n") || strings.Contains(text, local) || !strings.Contains(text, "\nfairlead_services 0\n") {
			t.Errorf("want %s invalid packets and no row of the other in\n%s", want, text)
		}
	}
}

func TestHandlers(t *testing.T) {
	m := newMetrics("nftables", model.IPv4)
	m.Pinged()
	own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_test"})
	m.Registerer().MustRegister(own)
	text := scrape(t, m.Handler())
	for _, part := range []string{"fairlead_test 0", "go_goroutines ", "process_resident_memory_bytes ", `fairlead_build_info{commit="abc"`, `git_version="v1.36.3+fairlead-v0.0.0-test"`} {
		if !strings.Contains(text, part) {
			t.Errorf("/metrics lacks %s", part)
		}
	}
	text = scrape(t, m.SLIHandler())
	for _, part := range []string{`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1`} {
		if !strings.Contains(text, part) {
			t.Errorf("/metrics/slis lacks %s", part)
		}
	}
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	return w.Body.String()
}

// TestSyncDoneIsCheap guards the budget of 0.3 ms CPU for one change: what a
// sync costs here must not allocate.
func TestSyncDoneIsCheap(t *testing.T) {
	m := newMetrics("nftables", model.IPv4, model.IPv6)
	r := &SyncReport{Done: start, Total: time.Millisecond, Operations: 3}
	one := func() {
		m.SyncDone(r)
		m.Programmed(0, start, start, start)
		m.Queued(0, start)
		m.ChangesSeen(0, 1)
	}
	one()
	if n := testing.AllocsPerRun(100, one); n > 0 {
		t.Errorf("%g allocations for one change", n)
	}
}

func BenchmarkOneChange(b *testing.B) {
	m := newMetrics("nftables", model.IPv4, model.IPv6)
	r := &SyncReport{Done: start, Total: time.Millisecond, Operations: 3, Phases: [NumPhases]time.Duration{1, 1, 1, 1}}
	for b.Loop() {
		m.SyncDone(r)
		m.Programmed(0, start, start, start)
		m.Queued(0, start)
		m.ChangesSeen(0, 1)
	}
}
