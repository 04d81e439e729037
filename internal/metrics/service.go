package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// serviceRows are of single Services and endpoints. Without --service-metrics they have no values.
func serviceRows() []row {
	service, endpoint := []string{"namespace", "service", "port"}, []string{"namespace", "service", "port", "endpoint"}
	kernel := []string{"iptables", "ipvs", "nftables"}
	with := func(labels []string, more string) []string { return append(labels[:len(labels):len(labels)], more) }
	return []row{
		{"fairlead_service_connections_total", counter, "Connections to a Service port that were sent to an endpoint (UDP: clients); Service ports without a row of their own are summed up in (other).", service, nil, kernel},
		{"fairlead_service_unanswered_total", counter, "Connections that ended without a packet from the endpoint.", service, nil, kernel},
		{"fairlead_service_refused_packets_total", counter, "First packets that were rejected because there was no endpoint; a client's retry counts again.", service, nil, kernel},
		{"fairlead_service_dropped_packets_total", counter, "First packets that were dropped: by source ranges, or by policy Local without an endpoint on this node; a client's retry counts again.", service, nil, kernel},
		{"fairlead_service_bytes_total", counter, "Bytes of ended connections, if the kernel counts them (nf_conntrack_acct); sent by clients, received from endpoints.", with(service, "direction"), nil, kernel},
		{"fairlead_endpoint_connections_total", counter, "As fairlead_service_connections_total, by endpoint.", endpoint, nil, kernel},
		{"fairlead_endpoint_unanswered_total", counter, "As fairlead_service_unanswered_total, by endpoint.", endpoint, nil, kernel},
		{"fairlead_endpoint_bytes_total", counter, "As fairlead_service_bytes_total, by endpoint.", with(endpoint, "direction"), nil, kernel},
		{"fairlead_service_metrics_losses_total", counter, "Overflows of the buffer for conntrack events: some connections are then missing in the numbers by Service.", nil, nil, kernel},
	}
}

// Traffic is what was counted by Service.
type Traffic struct {
	Services []ServiceTraffic
	Losses   uint64
	// Refusals reports whether refused and dropped packets are counted in this mode.
	Refusals bool
}

// ServiceTraffic is a row. A name may be any text that no object has as its name.
type ServiceTraffic struct {
	Namespace, Service, Port string
	TrafficCounts
	Refused, Dropped uint64
	Endpoints        []EndpointTraffic
}

// EndpointTraffic is a row of one endpoint.
type EndpointTraffic struct {
	Endpoint string
	TrafficCounts
}

// TrafficCounts are what is counted of both.
type TrafficCounts struct{ Connections, Unanswered, Sent, Received uint64 }

// trafficCollector reads at each scrape.
type trafficCollector struct {
	connections, unanswered, refused, dropped, bytes, toEndpoint, noAnswer, endpointBytes, losses *prometheus.Desc

	read atomic.Pointer[func() Traffic] // nil: not asked for, so there is no row
}

var _ prometheus.Collector = (*trafficCollector)(nil)

func newTraffic(b *builder) *trafficCollector {
	c := &trafficCollector{
		connections: b.desc("fairlead_service_connections_total", counter), unanswered: b.desc("fairlead_service_unanswered_total", counter),
		refused: b.desc("fairlead_service_refused_packets_total", counter), dropped: b.desc("fairlead_service_dropped_packets_total", counter),
		bytes: b.desc("fairlead_service_bytes_total", counter), toEndpoint: b.desc("fairlead_endpoint_connections_total", counter),
		noAnswer: b.desc("fairlead_endpoint_unanswered_total", counter), endpointBytes: b.desc("fairlead_endpoint_bytes_total", counter),
		losses: b.desc("fairlead_service_metrics_losses_total", counter),
	}
	b.serve(b.table["fairlead_service_connections_total"], c)
	return c
}

// Describe implements prometheus.Collector.
func (c *trafficCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connections, c.unanswered, c.refused, c.dropped, c.bytes, c.toEndpoint, c.noAnswer, c.endpointBytes, c.losses} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *trafficCollector) Collect(ch chan<- prometheus.Metric) {
	read := c.read.Load()
	if read == nil {
		return
	}
	t := (*read)()
	put := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	put(c.losses, t.Losses)
	for i := range t.Services {
		s := &t.Services[i]
		put(c.connections, s.Connections, s.Namespace, s.Service, s.Port)
		put(c.unanswered, s.Unanswered, s.Namespace, s.Service, s.Port)
		put(c.bytes, s.Sent, s.Namespace, s.Service, s.Port, "sent")
		put(c.bytes, s.Received, s.Namespace, s.Service, s.Port, "received")
		if t.Refusals {
			put(c.refused, s.Refused, s.Namespace, s.Service, s.Port)
			put(c.dropped, s.Dropped, s.Namespace, s.Service, s.Port)
		}
		for _, e := range s.Endpoints {
			put(c.toEndpoint, e.Connections, s.Namespace, s.Service, s.Port, e.Endpoint)
			put(c.noAnswer, e.Unanswered, s.Namespace, s.Service, s.Port, e.Endpoint)
			put(c.endpointBytes, e.Sent, s.Namespace, s.Service, s.Port, e.Endpoint, "sent")
			put(c.endpointBytes, e.Received, s.Namespace, s.Service, s.Port, e.Endpoint, "received")
		}
	}
}

// ByService sets the function that reads the traffic of Services. It is called only if that was requested.
func (m *Metrics) ByService(read func() Traffic) { m.traffic.read.Store(&read) }
