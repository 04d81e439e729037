package dns

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

const manyNames = 50_000

func manyServices() []model.Event {
	events := make([]model.Event, manyNames)
	for i := range events {
		ip := netip.AddrFrom4([4]byte{10, byte(100 + i>>16), byte(i >> 8), byte(i)})
		events[i] = serviceEvent(model.Service{
			Key: model.ServiceKey{Namespace: fmt.Sprintf("ns-%d", i%100), Name: fmt.Sprintf("svc-%d", i)}, ClusterIPs: []netip.Addr{ip},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
		})
	}
	return events
}

// TestMemory: what 50 000 Services cost beyond the values that package state
// holds anyway.
func TestMemory(t *testing.T) {
	events := manyServices()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := NewStore(StoreConfig{})
	s.Apply(events)
	each := float64(heap()-before) / manyNames
	t.Logf("%.0f bytes a Service", each)
	if each > 800 {
		t.Errorf("%.0f bytes a Service", each)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(events)
}

func BenchmarkApplyOne(b *testing.B) {
	s := NewStore(StoreConfig{})
	s.Apply(manyServices())
	list := [2][]model.Event{}
	for i := range list {
		list[i] = []model.Event{sliceEvent(flux(), endpoint("10.1.0.1", fmt.Sprint("h", i)), endpoint("10.1.0.2", "x"))}
	}
	s.Apply([]model.Event{serviceEvent(headlessService(nil))})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Apply(list[i%2])
	}
}

// BenchmarkServe is the whole path of a query but for the sockets' other end.
func BenchmarkServe(b *testing.B) {
	s := newSink(b)
	s.srv.cfg.Store.Apply(manyServices())
	for _, c := range []struct{ what, name string }{{"hit", "svc-77.ns-77.svc.cluster.local"}, {"search-path", "www.example.org.ns-1.svc.cluster.local"}} {
		b.Run(c.what, func(b *testing.B) {
			m := question(c.name, dns.TypeA)
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

func TestConfig(t *testing.T) {
	store := NewStore(StoreConfig{})
	good := netip.MustParseAddrPort("127.0.0.1:53")
	for _, c := range []struct {
		what string
		cfg  Config
		ok   bool
	}{
		{"as it should be", Config{Addrs: []netip.AddrPort{good}, Store: store}, true},
		{"no store", Config{Addrs: []netip.AddrPort{good}}, false},
		{"no address", Config{Store: store}, false},
		{"every address", Config{Addrs: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:53")}, Store: store}, false},
		{"itself as upstream", Config{Addrs: []netip.AddrPort{good}, Upstreams: []netip.AddrPort{good}, Store: store}, false},
		{"bad domain", Config{Addrs: []netip.AddrPort{good}, Domain: "a..b", Store: store}, false},
		{"parks too long", Config{Addrs: []netip.AddrPort{good}, Park: 5 * time.Second, Store: store}, false},
	} {
		if _, err := New(c.cfg); (err == nil) != c.ok {
			t.Errorf("%s: got %v", c.what, err)
		}
	}
}
