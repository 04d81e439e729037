package dns

import (
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/internal/model"
)

// TestEveryMetricMoves: each metric that is served is fed by something that happens.
func TestEveryMetricMoves(t *testing.T) {
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) { reply(w, req, req.Question[0].Name+" 60 IN A 192.0.2.1") })
	var faulty atomic.Bool
	r := newRig(t, func(c *Config) {
		c.Upstreams = []netip.AddrPort{up}
		c.Log = slog.New(slog.DiscardHandler)
		c.LastHeard = func() time.Time { return time.Now().Add(-time.Hour) }
		c.Healthy = func() bool {
			if faulty.Load() {
				panic("for the test")
			}
			return true
		}
	})
	conn, err := net.Dial("tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	svc := headlessService(nil)
	svc.Created = time.Now().Unix()
	r.store.Apply([]model.Event{serviceEvent(svc)})
	for range 2 {
		r.ask(t, question("www.example.org", dns.TypeA), "tcp")
	}
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		r.ask(t, question(hostName, dns.TypeA), "udp")
	}()
	r.waitParked(t, 1)
	during := gathered(t, r.store.metrics)
	published := sliceEvent(flux(), endpoint("10.1.0.1", "flux-0"))
	published.Trigger = time.Now().Add(-time.Second)
	r.store.Apply([]model.Event{published})
	<-waiting
	faulty.Store(true)
	r.ask(t, question("other.flux.jobs.svc.cluster.local", dns.TypeA), "udp")
	b, err := question("www.example.org", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	b[2] |= 0x80
	r.srv.serve(t.Context(), b, &asker{}) // an answer is no query
	r.srv.metrics.Intercepted(true)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { // some are set each second
		var idle []string
		for name, n := range gathered(t, r.store.metrics) {
			if during[name]+n == 0 {
				idle = append(idle, name)
			}
		}
		if len(idle) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nothing moves %v", idle)
		}
	}
}

// gathered sums each metric over its labels.
func gathered(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		out[f.GetName()] = 0
		for _, x := range f.Metric {
			out[f.GetName()] += x.GetCounter().GetValue() + x.GetGauge().GetValue() + float64(x.GetHistogram().GetSampleCount())
		}
	}
	return out
}
