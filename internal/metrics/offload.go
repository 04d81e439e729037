package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// offloadRows are of the acceleration (KEP-4963), next to the modes that can have it.
// Without its gate they have no values.
func offloadRows() []row {
	modes := []string{"iptables", "nftables"}
	return []row{
		{"fairlead_offload_threshold_packets", gauge, "Packets after which a connection to a Service is offloaded to the fast path; 0: offload was requested but is not available, fairlead status shows why.", nil, nil, modes},
		{"fairlead_offload_devices", gauge, "Devices between which connections are offloaded, of the family that has most.", nil, nil, modes},
		{"fairlead_offload_refused_total", counter, "Failures of the offload, by reason: kernel (rejected transactions), device, full (Service ports), fault (offload disabled, because this kernel breaks connections).", []string{"reason"}, nil, modes},
		{"fairlead_offload_connections", gauge, "Connections that are on the kernel's fast path now; no row if conntrack has too many flows to count cheaply.", nil, nil, modes},
		{"fairlead_offload_packets", gauge, "Packets of the connections on the fast path, both directions, including those before the offload; no row if fairlead_offload_connections has none.", nil, nil, modes},
		{"fairlead_offload_bytes", gauge, "Bytes of those packets.", nil, nil, modes},
		{"fairlead_offload_left_packets_total", counter, "Packets of connections above the threshold that still traversed the rules, by reason: excluded (--offload-exclude-file), impossible (the kernel does not offload them, as at a connection's end); counted since the rules were last written.", []string{"reason"}, nil, modes},
		{"fairlead_offload_connections_total", counter, "Offloads of connections to the kernel's fast path; a connection counts each time it is offloaded; counted since the rules were last written.", nil, nil, modes},
	}
}

// Offload is the state that the acceleration reports at a scrape.
type Offload struct {
	Threshold, Devices int
	Refused            map[string]uint64 // by reason
	// Taken counts connections; the error is set if the kernel cannot be read.
	Taken    uint64
	TakenErr error
	// Excluded and Impossible are packets that were not taken; they come with Taken.
	Excluded, Impossible uint64
	// Now counts connections, and what they have carried; the error is set if they are not
	// counted.
	Now            int
	Packets, Bytes uint64
	NowErr         error
}

// offloadCollector reads at each scrape.
type offloadCollector struct {
	threshold, devices, refused, taken, left, now, packets, bytes *prometheus.Desc
	read                                                          atomic.Pointer[func() Offload] // nil: not asked for, so there is no row
}

var _ prometheus.Collector = (*offloadCollector)(nil)

func newOffload(b *builder) *offloadCollector {
	c := &offloadCollector{
		threshold: b.desc("fairlead_offload_threshold_packets", gauge), devices: b.desc("fairlead_offload_devices", gauge),
		refused: b.desc("fairlead_offload_refused_total", counter), taken: b.desc("fairlead_offload_connections_total", counter),
		now: b.desc("fairlead_offload_connections", gauge), left: b.desc("fairlead_offload_left_packets_total", counter),
		packets: b.desc("fairlead_offload_packets", gauge), bytes: b.desc("fairlead_offload_bytes", gauge),
	}
	b.serve(b.table["fairlead_offload_devices"], c)
	return c
}

// Describe implements prometheus.Collector.
func (c *offloadCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.threshold, c.devices, c.refused, c.taken, c.left, c.now, c.packets, c.bytes} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *offloadCollector) Collect(ch chan<- prometheus.Metric) {
	read := c.read.Load()
	if read == nil {
		return
	}
	o := (*read)()
	ch <- prometheus.MustNewConstMetric(c.threshold, prometheus.GaugeValue, float64(o.Threshold))
	ch <- prometheus.MustNewConstMetric(c.devices, prometheus.GaugeValue, float64(o.Devices))
	for _, reason := range []string{"kernel", "device", "full", "fault"} {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(o.Refused[reason]), reason)
	}
	if o.TakenErr == nil {
		ch <- prometheus.MustNewConstMetric(c.taken, prometheus.CounterValue, float64(o.Taken))
		ch <- prometheus.MustNewConstMetric(c.left, prometheus.CounterValue, float64(o.Excluded), "excluded")
		ch <- prometheus.MustNewConstMetric(c.left, prometheus.CounterValue, float64(o.Impossible), "impossible")
	}
	if o.NowErr == nil {
		ch <- prometheus.MustNewConstMetric(c.now, prometheus.GaugeValue, float64(o.Now))
		ch <- prometheus.MustNewConstMetric(c.packets, prometheus.GaugeValue, float64(o.Packets))
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(o.Bytes))
	}
}

// Offload sets the function that reads the state of the acceleration. It is called only
// if that was requested.
func (m *Metrics) Offload(read func() Offload) { m.offload.read.Store(&read) }
