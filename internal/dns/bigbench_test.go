package dns

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// bigService is one headless Service of 5 000 endpoints in slices of 100.
const bigService = 5000

func bigSlice(n int, flip bool) model.Event {
	sl := &model.Slice{Key: model.SliceKey{Namespace: "jobs", Name: fmt.Sprintf("flux-%03d", n)}, Service: flux(), Family: model.IPv4, Headless: true,
		Ports: []model.SlicePort{{Name: "zmq", Protocol: model.TCP, Port: 8050}}}
	for i := range 100 {
		at := n*100 + i
		sl.Endpoints = append(sl.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(at >> 8), byte(at)}),
			Hostname: fmt.Sprintf("flux-%d", at), Ready: i > 0 || !flip, Serving: true})
	}
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: sl.Key, Value: sl}}
}

func bigStore(s *Store) {
	events := []model.Event{serviceEvent(headlessService(nil))}
	for n := range bigService / 100 {
		events = append(events, bigSlice(n, false))
	}
	s.Apply(events)
}

func BenchmarkBigQuery(b *testing.B) {
	s := newSink(b)
	bigStore(s.srv.cfg.Store)
	for _, c := range []struct {
		what, name string
		qtype      uint16
	}{
		{"A", "flux.jobs.svc.cluster.local", dns.TypeA}, {"SRV", "_zmq._tcp.flux.jobs.svc.cluster.local", dns.TypeSRV},
		{"host", "flux-77.flux.jobs.svc.cluster.local", dns.TypeA}, {"status", "_status.flux.jobs.svc.cluster.local", dns.TypeTXT},
	} {
		b.Run(c.what, func(b *testing.B) {
			m := question(c.name, c.qtype)
			m.SetEdns0(1232, false)
			packet, err := m.Pack()
			if err != nil {
				b.Fatal(err)
			}
			from := &asker{addr: netip.MustParseAddrPort("127.0.0.1:9"), udp: s.out}
			b.ReportAllocs()
			for b.Loop() {
				s.srv.serve(b.Context(), packet, from)
			}
		})
	}
}

// BenchmarkBigChange: one endpoint of 5 000 becomes ready or not.
func BenchmarkBigChange(b *testing.B) {
	s := NewStore(StoreConfig{})
	bigStore(s)
	list := [2][]model.Event{{bigSlice(25, true)}, {bigSlice(25, false)}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Apply(list[i%2])
	}
}

// BenchmarkMiss: a name that was never asked for, when the memory of misses is full.
func BenchmarkMiss(b *testing.B) {
	m := misses{since: map[model.ServiceKey]map[string]time.Time{}}
	now := time.Now()
	for i := range maxMisses {
		m.missed(flux(), fmt.Sprint("h", i), now)
	}
	for i := 0; b.Loop(); i++ {
		m.missed(flux(), "another", now)
	}
}
