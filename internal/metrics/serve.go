package metrics

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Names are those that /metrics serves in a mode, apart from Go's own, also while they
// have no row yet.
func Names(mode string) (names []string) {
	for _, r := range rows() {
		if r.in(mode) {
			names = append(names, r.name)
		}
	}
	return names
}

// Registerer returns where a package that owns collectors (DNS) registers them, to be
// served with the agent's.
func (m *Metrics) Registerer() prometheus.Registerer { return m.reg }

// SLIHandler serves /metrics/slis: Kubernetes' component health indicators.
func (m *Metrics) SLIHandler() http.Handler {
	return promhttp.HandlerFor(m.slis, promhttp.HandlerOpts{})
}

// buildSLIs makes the rows of /metrics/slis, with the names that KEP-3466 defines for
// every component. The only check is "ping": the process answers.
func (m *Metrics) buildSLIs() {
	m.slis = prometheus.NewRegistry()
	now := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_healthcheck", Help: "1 if the last health check succeeded.",
	}, []string{"name", "type"})
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetes_healthchecks_total", Help: "Health checks by result.",
	}, []string{"name", "status", "type"})
	m.slis.MustRegister(now, total)
	now.WithLabelValues("ping", "healthz").Set(1)
	m.healthchecks = total.WithLabelValues("ping", "success", "healthz")
}

// Pinged counts an answer of /healthz of the metrics server.
func (m *Metrics) Pinged() { m.healthchecks.Inc() }

// RESTLatency has the method set of client-go's metrics.LatencyMetric, so that
// app can register it without this package importing client-go.
type RESTLatency struct{ h *prometheus.HistogramVec }

// RESTLatency observes requests to the API server.
func (m *Metrics) RESTLatency() RESTLatency { return RESTLatency{m.restLatency} }

// Observe records one request.
func (r RESTLatency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	r.h.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

// RESTResult has the method set of client-go's metrics.ResultMetric.
type RESTResult struct{ c *prometheus.CounterVec }

// RESTResult counts requests to the API server.
func (m *Metrics) RESTResult() RESTResult { return RESTResult{m.restRequests} }

// Increment counts one request.
func (r RESTResult) Increment(_ context.Context, code, method, host string) {
	r.c.WithLabelValues(code, method, host).Inc()
}

// watches computes, when it is read, how stale each source is.
type watches struct {
	connected, staleness *prometheus.Desc
	now                  func() time.Time

	mu sync.Mutex // sources write, the HTTP server reads
	by map[string]watch
}

type watch struct {
	connected bool
	last      time.Time
}

var _ prometheus.Collector = (*watches)(nil)

func newWatches(connected, staleness *prometheus.Desc, now func() time.Time) *watches {
	return &watches{connected: connected, staleness: staleness, now: now, by: map[string]watch{}}
}

func (w *watches) set(resource string, v watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[resource] = v
}

// Describe implements prometheus.Collector.
func (w *watches) Describe(ch chan<- *prometheus.Desc) {
	ch <- w.connected
	ch <- w.staleness
}

// Collect implements prometheus.Collector.
func (w *watches) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for resource, v := range w.by {
		up := 0.0
		if v.connected {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(w.connected, prometheus.GaugeValue, up, resource)
		if !v.last.IsZero() {
			ch <- prometheus.MustNewConstMetric(w.staleness, prometheus.GaugeValue, max(w.now().Sub(v.last), 0).Seconds(), resource)
		}
	}
}
