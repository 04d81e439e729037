package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/model"
)

// builder makes the metrics of the table. A row that no code requests, or a name that
// is no row, is a programming error found at start.
type builder struct {
	reg   *prometheus.Registry
	mode  string
	table map[string]row
	used  map[string]bool
}

func newBuilder(mode string) *builder {
	b := &builder{reg: prometheus.NewRegistry(), mode: mode, table: map[string]row{}, used: map[string]bool{}}
	for _, r := range rows() {
		b.table[r.name] = r
	}
	return b
}

func (b *builder) row(name string, k kind) row {
	r, ok := b.table[name]
	if !ok || r.kind != k || b.used[name] {
		panic(fmt.Sprintf("metric %s: not a %s of the table, or created twice", name, k))
	}
	b.used[name] = true
	return r
}

// serve registers c if the mode has the row; else it is made, so that callers
// need no special case, but never seen.
func (b *builder) serve(r row, c prometheus.Collector) {
	if r.in(b.mode) {
		b.reg.MustRegister(c)
	}
}

func (b *builder) counter(name string) *prometheus.CounterVec {
	r := b.row(name, counter)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.name, Help: r.help}, r.labels)
	b.serve(r, c)
	return c
}

func (b *builder) gauge(name string) *prometheus.GaugeVec {
	r := b.row(name, gauge)
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: r.name, Help: r.help}, r.labels)
	b.serve(r, g)
	return g
}

func (b *builder) histogram(name string) *prometheus.HistogramVec {
	r := b.row(name, histogram)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: r.name, Help: r.help, Buckets: r.buckets}, r.labels)
	b.serve(r, h)
	return h
}

// gaugeFunc is a gauge without labels whose value is read at each scrape.
func (b *builder) gaugeFunc(name string, value func() int) {
	r := b.row(name, gauge)
	b.serve(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: r.name, Help: r.help}, func() float64 { return float64(value()) }))
}

// desc is for a metric whose value is computed when it is read.
func (b *builder) desc(name string, k kind) *prometheus.Desc {
	r := b.row(name, k)
	return prometheus.NewDesc(r.name, r.help, r.labels, nil)
}

func (b *builder) finish() {
	for name := range b.table {
		if !b.used[name] {
			panic("metric " + name + " is in the table, but no collector sets it")
		}
	}
}

// byFamily holds one child for each family in use, resolved once: 0 is IPv4,
// 1 is IPv6; the zero value for a family not in use.
type byFamily[T any] [2]T

func (b *byFamily[T]) of(f model.Family) T {
	if f == model.IPv6 {
		return b[1]
	}
	return b[0]
}

func perFamily[T any](families []model.Family, with func(...string) T) byFamily[T] {
	var b byFamily[T]
	for _, f := range families {
		i := 0
		if f == model.IPv6 {
			i = 1
		}
		b[i] = with(f.String())
	}
	return b
}
