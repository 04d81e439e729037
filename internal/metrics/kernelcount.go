package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// kernelCount is a number that the kernel keeps. It is read at each scrape: a cached
// copy would be stale, and updating it would wake the agent for nothing.
type kernelCount struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	read atomic.Pointer[func() (uint64, error)] // nil: not counted, so there is no row
}

var _ prometheus.Collector = (*kernelCount)(nil)

func (b *builder) kernelCount(name string) *kernelCount {
	return b.kernelValue(name, counter, prometheus.CounterValue)
}

// kernelGauge is a kernelCount that may fall.
func (b *builder) kernelGauge(name string) *kernelCount {
	return b.kernelValue(name, gauge, prometheus.GaugeValue)
}

func (b *builder) kernelValue(name string, k kind, typ prometheus.ValueType) *kernelCount {
	c := &kernelCount{desc: b.desc(name, k), typ: typ}
	b.serve(b.table[name], c)
	return c
}

// Describe implements prometheus.Collector.
func (c *kernelCount) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector. A counter that cannot be read is left
// out: an error would take all other metrics with it.
func (c *kernelCount) Collect(ch chan<- prometheus.Metric) {
	read := c.read.Load()
	if read == nil {
		return
	}
	if n, err := (*read)(); err == nil {
		ch <- prometheus.MustNewConstMetric(c.desc, c.typ, float64(n))
	}
}
