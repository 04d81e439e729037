package app

import "github.com/prometheus/client_golang/prometheus"

// relayCollector reads the relay's counters at each scrape. No label holds a
// Service's name: a limit that is reached names its Service in the log.
type relayCollector struct{ r *rootless }

type relayRow struct {
	name, help string
	kind       prometheus.ValueType
	value      float64
	reason     string
}

// rows returns the metrics of userspace mode, those of one name together.
func (c *relayCollector) rows() []relayRow {
	n := c.r.relay.Counts()
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	const over, overHelp = "fairlead_userspace_turned_away_total", "Connections and UDP clients rejected at a limit: of their Service (its share of the free descriptors), of the process (descriptors), or of the network namespace (ports for UDP clients)."
	return []relayRow{
		{"fairlead_userspace_sockets", "Sockets that are open.", gauge, float64(c.r.driver.Sockets()), ""},
		{"fairlead_userspace_sockets_waiting", "Sockets that wait for an address or port that another program uses.", gauge, float64(c.r.driver.Waiting()), ""},
		{"fairlead_userspace_connections", "TCP connections that are open now.", gauge, float64(n.Connections), ""},
		{"fairlead_userspace_moving", "Directions of TCP connections that hold a pipe or a buffer: bytes pass, or wait for the receiver.", gauge, float64(n.Moving), ""},
		{"fairlead_userspace_udp_clients", "UDP clients that are remembered now.", gauge, float64(n.Flows), ""},
		{"fairlead_userspace_accepted_total", "TCP connections and UDP clients accepted.", counter, float64(n.Accepted), ""},
		{"fairlead_userspace_retries_total", "Endpoints that did not accept a connection, so that the agent tried another.", counter, float64(n.Retried), ""},
		{"fairlead_userspace_refused_total", "Connections for which no endpoint was found.", counter, float64(n.Refused), ""},
		{over, overHelp, counter, float64(n.OverService), "service"},
		{over, overHelp, counter, float64(n.OverProcess), "process"},
		{over, overHelp, counter, float64(n.OverPorts), "ports"},
		{"fairlead_userspace_udp_displaced_total", "UDP clients evicted, longest idle first, to admit new clients of their Service.", counter, float64(n.Displaced), ""},
		{"fairlead_userspace_loops_total", "Endpoints not tried because they are a socket of this agent that forwards back to the same Service (a loop).", counter, float64(n.Loops), ""},
		{"fairlead_userspace_stalled_total", "Connections ended because a peer neither read nor sent for too long, or is unreachable.", counter, float64(n.Stalled), ""},
		{"fairlead_userspace_endpoint_gone_total", "Connections ended because their endpoint no longer exists: after the grace period, or at once with --reset-gone-endpoints.", counter, float64(n.Gone), ""},
		{"fairlead_userspace_bytes_total", "Bytes relayed over TCP connections.", counter, float64(n.Bytes), ""},
		{"fairlead_userspace_datagrams_lost_total", "Datagrams that were not relayed.", counter, float64(n.Lost), ""},
		{"fairlead_userspace_source_lost_total", "Connections and UDP clients whose address could not be kept towards the endpoint (fairlead.dev/source-address).", counter, float64(n.SourceLost), ""},
	}
}

func (c *relayCollector) desc(r relayRow) *prometheus.Desc {
	var labels []string
	if r.reason != "" {
		labels = []string{"limit"}
	}
	return prometheus.NewDesc(r.name, r.help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *relayCollector) Describe(out chan<- *prometheus.Desc) {
	for _, r := range c.rows() {
		out <- c.desc(r)
	}
}

// Collect implements prometheus.Collector.
func (c *relayCollector) Collect(out chan<- prometheus.Metric) {
	for _, r := range c.rows() {
		var values []string
		if r.reason != "" {
			values = []string{r.reason}
		}
		out <- prometheus.MustNewConstMetric(c.desc(r), r.kind, r.value, values...)
	}
}
