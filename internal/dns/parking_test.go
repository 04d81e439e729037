package dns

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead/fairlead/internal/model"
)

func ptr[T any](v T) *T { return &v }

// value reads a counter, a gauge, or how often a histogram was observed.
func value(m prometheus.Metric) int {
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		return -1
	}
	return int(d.GetCounter().GetValue()+d.GetGauge().GetValue()) + int(d.GetHistogram().GetSampleCount())
}

func (r *rig) result(name string) int {
	return value(r.store.metrics.parkedTotal.WithLabelValues(name))
}

// waitParked waits until n queries are parked.
func (r *rig) waitParked(t *testing.T, n int) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for value(r.store.metrics.parked) != n {
		if time.Now().After(end) {
			t.Fatalf("%d parked, want %d", value(r.store.metrics.parked), n)
		}
		time.Sleep(time.Millisecond) // bounded poll
	}
}

// waitShed waits until some bound of parking has been reached.
func (r *rig) waitShed(t *testing.T) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for r.result(shed) == 0 {
		if time.Now().After(end) {
			t.Fatal("nothing is shed")
		}
		time.Sleep(time.Millisecond) // bounded poll
	}
}

const hostName = "flux-0.flux.jobs.svc.cluster.local"

// TestPublished: A, AAAA and SRV wait together and end at once when the slice
// comes, whatever protocol they came by.
func TestPublished(t *testing.T) {
	r := newRig(t, nil)
	r.store.Apply([]model.Event{serviceEvent(headlessService(ptr(MaxPark)))})
	begin := time.Now()
	var answered sync.WaitGroup
	asks := []struct {
		name  string
		qtype uint16
		proto string
		want  int
	}{
		{hostName, dns.TypeA, "udp", 1}, {hostName, dns.TypeAAAA, "udp", 0}, {hostName, dns.TypeA, "tcp", 1},
		{"flux.jobs.svc.cluster.local", dns.TypeA, "udp", 1}, {"_zmq._tcp.flux.jobs.svc.cluster.local", dns.TypeSRV, "udp", 1},
	}
	for _, q := range asks {
		answered.Go(func() {
			m := r.ask(t, question(q.name, q.qtype), q.proto)
			if len(m.Answer) != q.want || m.Rcode != dns.RcodeSuccess {
				t.Errorf("%s %s: got %v", q.name, q.proto, m)
			}
		})
	}
	r.waitParked(t, len(asks))
	r.store.Apply([]model.Event{sliceEvent(flux(), endpoint("10.1.0.1", "flux-0"))})
	answered.Wait()
	if got, took := r.result(released), time.Since(begin); got != len(asks) || took >= MaxPark { // when they would have ended in any case
		t.Errorf("%d released, after %s", got, took)
	}
	if n := value(r.store.metrics.firstMiss); n != 2 { // the Service's name and the host's
		t.Errorf("first_miss_to_publish was observed %d times", n)
	}
}

// TestExpired: the wait ends with NXDOMAIN, and the client is then not stalled
// again for a while; another one is.
func TestExpired(t *testing.T) {
	r := newRig(t, nil)
	r.store.Apply([]model.Event{serviceEvent(headlessService(ptr(time.Second)))})
	for i, q := range []struct {
		from    string
		expired int // waits, in all
	}{{"127.0.0.1", 1}, {"127.0.0.1", 1}, {"127.0.0.2", 2}} {
		start, before := time.Now(), r.result(expired)
		c := dns.Client{Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(q.from)}}, Timeout: 30 * time.Second}
		m, _, err := c.Exchange(question(hostName, dns.TypeA), r.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 || m.Ns[0].(*dns.SOA).Minttl != 0 {
			t.Errorf("got %v", m)
		}
		took, now := time.Since(start), r.result(expired)
		if now != q.expired || now > before && took < 990*time.Millisecond {
			t.Errorf("query %d of %s took %s, %d have waited, want %d", i, q.from, took, now, q.expired)
		}
	}
}

// TestExpected: which names are waited for.
func TestExpected(t *testing.T) {
	now := time.Now()
	old, fresh := now.Add(-time.Hour).Unix(), now.Unix()
	waiting := endpoint("10.1.0.9", "flux-9")
	waiting.Ready = false
	with := func(created int64, park *time.Duration, endpoints ...model.Endpoint) *Store {
		s := NewStore(StoreConfig{})
		svc := headlessService(park)
		svc.Created = created
		s.Apply([]model.Event{serviceEvent(svc), sliceEvent(flux(), endpoints...)})
		return s
	}
	gone := with(old, nil, endpoint("10.1.0.1", "flux-0"), endpoint("10.1.0.2", "flux-1"))
	gone.Apply([]model.Event{sliceEvent(flux(), endpoint("10.1.0.2", "flux-1"))})
	for _, c := range []struct {
		what  string
		store *Store
		name  string
		want  time.Duration
	}{
		{"old Service, nothing known", with(old, nil), hostName, 0},
		{"young Service", with(fresh, nil), hostName, DefaultPark},
		{"young Service, its own name", with(fresh, nil), "flux.jobs.svc.cluster.local", DefaultPark},
		{"young Service, annotation 0", with(fresh, ptr(time.Duration(0))), hostName, 0},
		{"annotation", with(old, ptr(3*time.Second)), hostName, 3 * time.Second},
		{"not ready", with(old, nil, waiting), "flux-9.flux.jobs.svc.cluster.local", DefaultPark},
		{"another is not ready", with(old, nil, waiting), hostName, 0},
		{"some are not ready, own name", with(old, nil, waiting), "flux.jobs.svc.cluster.local", DefaultPark},
		{"published a moment ago", gone, hostName, DefaultPark},
	} {
		z := newZone(&Config{Domain: "cluster.local", Store: c.store})
		a := z.resolve(lookup{name: c.name + ".", qtype: dns.TypeA, room: 512})
		if a.miss == nil {
			t.Errorf("%s: not a miss: %v", c.what, a)
			continue
		}
		if got := a.miss.park(DefaultPark, now); got != c.want {
			t.Errorf("%s: parks %s, want %s", c.what, got, c.want)
		}
		if got := a.miss.park(DefaultPark, now.Add(memory)); got != c.want && c.want != DefaultPark {
			t.Errorf("%s: parks %s after %s", c.what, got, memory)
		}
	}
	for _, name := range []string{"flux.nowhere.svc", "other.jobs.svc", "a.b.flux.jobs.svc", "flux.jobs.svc.jobs.svc"} {
		z := newZone(&Config{Domain: "cluster.local", Store: with(fresh, nil)})
		if a := z.resolve(lookup{name: name + ".cluster.local.", qtype: dns.TypeA, room: 512}); a.miss != nil {
			t.Errorf("%s may be parked", name)
		}
	}
}

// TestManyClients: 10 000 parked clients are cut at the bounds, each of them is
// answered, and the server serves concurrently.
func TestManyClients(t *testing.T) {
	r := newRig(t, nil)
	r.store.Apply([]model.Event{serviceEvent(headlessService(ptr(MaxPark)))})
	const clients, each = 200, 50
	answered := make(chan int, clients)
	for i := range clients {
		go func() {
			n := 0
			defer func() { answered <- n }()
			u, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i+1))}, net.UDPAddrFromAddrPort(r.addr))
			if err != nil {
				t.Error(err)
				return
			}
			defer u.Close()
			for j := range each {
				b, _ := question(fmt.Sprintf("h%d.flux.jobs.svc.cluster.local", j), dns.TypeA).Pack()
				_, _ = u.Write(b)
			}
			buf := make([]byte, 512)
			for ; n < each; n++ {
				_ = u.SetReadDeadline(time.Now().Add(10 * time.Second))
				if _, err := u.Read(buf); err != nil {
					return
				}
			}
		}()
	}
	r.waitShed(t)
	r.serving(t)
	total := 0
	for range clients {
		total += <-answered
	}
	if total < clients*each*95/100 { // UDP may lose some of a burst
		t.Errorf("%d of %d answered", total, clients*each)
	}
	if s := r.result(shed) + r.result(expired); s < clients*each*95/100 {
		t.Errorf("%d shed or expired", s)
	}
	r.waitParked(t, 0)
}

func TestBounds(t *testing.T) {
	m := NewMetrics()
	l := newParking(parkingConfig{metrics: m, now: time.Now, retry: func(*query, bool) {}})
	add := func(client string, port uint16, name string, id uint16) bool {
		msg := question(name, dns.TypeA)
		msg.Id = id
		from := &asker{addr: netip.AddrPortFrom(netip.MustParseAddr(client), port)}
		return l.add(&query{msg: msg, from: from, name: name, qtype: dns.TypeA}, flux(), time.Second)
	}
	for i := range maxPerPair {
		if !add("10.0.0.1", uint16(i+1), "a.", 1) {
			t.Fatalf("query %d of one name is refused", i)
		}
	}
	if add("10.0.0.1", 99, "a.", 1) {
		t.Error("one too many of one client and name")
	}
	if !add("10.0.0.1", 1, "a.", 1) {
		t.Error("the same query again does not join")
	}
	for i := range maxPerClient {
		add("10.0.0.1", 1, fmt.Sprintf("n%d.", i), 2)
	}
	if len(l.waiters) != maxPerClient {
		t.Errorf("%d of one client", len(l.waiters))
	}
	l.cancelAll()
	if len(l.waiters)+len(l.byKey)+len(l.clients)+len(l.pairs) != 0 {
		t.Errorf("something is left: %d %d %d %d", len(l.waiters), len(l.byKey), len(l.clients), len(l.pairs))
	}
}
