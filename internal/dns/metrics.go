package dns

import (
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts what the package does. It is a prometheus.Collector: register
// it once. All label sets are bounded.
type Metrics struct {
	requests    [zones][types][rcodes]prometheus.Counter
	requestsVec *prometheus.CounterVec

	parked       prometheus.Gauge
	parkedTotal  *prometheus.CounterVec
	parkDuration prometheus.Histogram
	firstMiss    prometheus.Histogram
	programming  *prometheus.HistogramVec

	forwards    *prometheus.CounterVec
	forwardTime prometheus.Histogram
	healthy     prometheus.Gauge
	cacheHits   prometheus.Counter

	synced, services, tcpConns, watchAge, intercepted, serving prometheus.Gauge

	dropped *prometheus.CounterVec
	panics  prometheus.Counter
}

const (
	zones  = 3
	types  = 8
	rcodes = 7
)

type zoneLabel uint8

const (
	zoneCluster zoneLabel = iota
	zoneReverse
	zoneOther
)

// Results of a parked query.
const (
	released  = "released"
	expired   = "expired"
	shed      = "shed"
	cancelled = "cancelled"
)

// Reasons why a packet or a connection is dropped.
const (
	dropNoQuery    = "no_query"
	dropNotAllowed = "not_allowed"
	dropRate       = "rate"
	dropTCPLimit   = "tcp_limit"
)

// Results of a query for another server.
const (
	forwardOK         = "ok"
	forwardError      = "error"
	forwardShed       = "shed"        // too many of all clients
	forwardShedClient = "shed_client" // too many of this client
)

var (
	zoneNames  = [zones]string{"cluster", "reverse", "other"}
	typeNames  = [types]string{"A", "AAAA", "SRV", "PTR", "TXT", "SOA", "NS", "other"}
	rcodeNames = [rcodes]string{"NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED", "FORMERR", "NOTIMP", "other"}
)

const ns, sub = "fairlead", "dns"

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help, Buckets: buckets}
}

// NewMetrics returns the metrics, all at zero.
func NewMetrics() *Metrics {
	late := []float64{.01, .05, .1, .25, .5, 1, 2, 3, 5, 8, 13, 21, 34, 60, 120, 300}
	m := &Metrics{
		requestsVec: counterVec("requests_total", "Queries answered, by zone, type and response code.", "zone", "type", "rcode"),
		parked:      gauge("parked", "Queries that wait now for a name to be published."),
		parkedTotal: counterVec("parked_total", "Queries that waited (result shed: were not admitted to wait) for a name to be published.", "result"),
		parkDuration: prometheus.NewHistogram(histogram("park_duration_seconds", "How long parked queries waited.",
			[]float64{.01, .05, .1, .25, .5, .75, 1, 1.5, 2, 3, 4})),
		firstMiss: prometheus.NewHistogram(histogram("first_miss_to_publish_seconds",
			"Time from the first unanswered query for a name of a headless Service until the name was published.", late)),
		// Buckets as coredns_kubernetes_dns_programming_duration_seconds: 1 ms to about 17 min.
		programming: prometheus.NewHistogramVec(histogram("programming_duration_seconds",
			"Time from the change of an endpoint until this node's DNS answers with it.",
			prometheus.ExponentialBuckets(.001, 2, 20)), []string{"service_kind"}),
		forwards: counterVec("forward_requests_total", "Queries sent to upstream servers, by result.", "result"),
		forwardTime: prometheus.NewHistogram(histogram("forward_duration_seconds", "Time until an upstream server answered.",
			prometheus.ExponentialBuckets(.00025, 4, 8))),
		healthy:     gauge("forward_healthy_upstreams", "Upstream servers that answer."),
		cacheHits:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: "forward_cache_hits_total", Help: "Queries answered from the cache of upstream answers."}),
		synced:      gauge("synced", "1 when every source has delivered its first list: only then does the server answer for the cluster domain."),
		services:    gauge("services", "Services known to the server."),
		tcpConns:    gauge("tcp_connections", "Open TCP connections."),
		watchAge:    gauge("watch_age_seconds", "Time since the last message from the source, at the last self-check."),
		intercepted: gauge("intercepted", "1 while pods' queries for the cluster DNS Service are redirected to this server."),
		serving:     gauge("serving", "1 while the server listens on all of its addresses."),
		dropped:     counterVec("dropped_total", "Packets and connections without an answer, or refused because of their sender or its rate.", "reason"),
		panics:      prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: "faults_total", Help: "Queries that caused a panic in the server. Each is a bug in Fairlead: please report it."}),
	}
	m.resolveLabels()
	return m
}

// resolveLabels caches the counters: a query must not pay for a map lookup.
func (m *Metrics) resolveLabels() {
	for z := range zones {
		for t := range types {
			for r := range rcodes {
				m.requests[z][t][r] = m.requestsVec.WithLabelValues(zoneNames[z], typeNames[t], rcodeNames[r])
			}
		}
	}
	for _, r := range []string{released, expired, shed, cancelled} {
		m.parkedTotal.WithLabelValues(r)
	}
	for _, r := range []string{dropNoQuery, dropNotAllowed, dropRate, dropTCPLimit} {
		m.dropped.WithLabelValues(r)
	}
	for _, r := range []string{forwardOK, forwardError, forwardShed, forwardShedClient} {
		m.forwards.WithLabelValues(r)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.requestsVec, m.parked, m.parkedTotal, m.parkDuration, m.firstMiss, m.programming, m.forwards,
		m.forwardTime, m.healthy, m.cacheHits, m.synced, m.services, m.tcpConns, m.watchAge, m.intercepted, m.serving, m.dropped,
		m.panics,
	}
}

// Intercepted sets whether queries are redirected to this server; any goroutine may call it.
func (m *Metrics) Intercepted(yes bool) {
	if yes {
		m.intercepted.Set(1)
		return
	}
	m.intercepted.Set(0)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

var _ prometheus.Collector = (*Metrics)(nil)

func (m *Metrics) count(z zoneLabel, qtype uint16, rcode int) {
	m.requests[z][typeIndex(qtype)][rcodeIndex(rcode)].Inc()
}

func (m *Metrics) unparked(result string, waited time.Duration) {
	m.parkedTotal.WithLabelValues(result).Inc()
	if result != shed {
		m.parkDuration.Observe(waited.Seconds())
	}
}

func typeIndex(t uint16) int {
	switch t {
	case dns.TypeA:
		return 0
	case dns.TypeAAAA:
		return 1
	case dns.TypeSRV:
		return 2
	case dns.TypePTR:
		return 3
	case dns.TypeTXT:
		return 4
	case dns.TypeSOA:
		return 5
	case dns.TypeNS:
		return 6
	}
	return 7
}

func rcodeIndex(rcode int) int {
	switch rcode {
	case dns.RcodeSuccess:
		return 0
	case dns.RcodeNameError:
		return 1
	case dns.RcodeServerFailure:
		return 2
	case dns.RcodeRefused:
		return 3
	case dns.RcodeFormatError:
		return 4
	case dns.RcodeNotImplemented:
		return 5
	}
	return 6
}
