package dns

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

func nodeEvents() []model.Event {
	return []model.Event{
		{Node: &model.Keyed[string, model.Node]{Key: "node-a", Value: &model.Node{Name: "node-a", PodCIDRs: prefixes("10.244.1.0/24", "fd00:1::/64")}}},
		{Host: &model.HostAddrs{Addrs: []model.HostAddr{
			{Prefix: netip.MustParsePrefix("192.0.2.10/24"), Link: "eth0"}, {Prefix: netip.MustParsePrefix("10.88.0.1/16"), Link: "cni0"},
		}}},
	}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// TestWhoMayAsk: the node and its pods, by whatever is known of them; others only if
// they are listed, or if the interception brings them.
func TestWhoMayAsk(t *testing.T) {
	for _, c := range []struct {
		what        string
		store       StoreConfig
		allow       []netip.Prefix
		from        string
		intercepted bool
		may         bool
	}{
		{"loopback", StoreConfig{}, nil, "127.0.0.1", false, true},
		{"the node", StoreConfig{}, nil, "192.0.2.10", false, true},
		{"a neighbour", StoreConfig{}, nil, "192.0.2.11", false, false},
		{"a pod, the Node not being ours", StoreConfig{NodeName: "node-b"}, nil, "10.244.1.7", false, false},
		{"a pod of the Node's range", StoreConfig{NodeName: "node-a"}, nil, "10.244.1.7", false, true},
		{"the same, mapped", StoreConfig{NodeName: "node-a"}, nil, "::ffff:10.244.1.7", false, true},
		{"a pod of IPv6", StoreConfig{NodeName: "node-a"}, nil, "fd00:1::7", false, true},
		{"another node's pod", StoreConfig{NodeName: "node-a"}, nil, "10.244.2.7", false, false},
		{"another node's pod by interception", StoreConfig{NodeName: "node-a"}, nil, "10.244.2.7", true, true},
		{"a configured range", StoreConfig{PodRanges: prefixes("10.244.0.0/16")}, nil, "10.244.2.7", false, true},
		{"another node's pod, in the cluster's range", StoreConfig{NodeName: "node-a", PodRanges: prefixes("10.244.0.0/16")}, nil, "10.244.2.7", false, false},
		{"this node's pod, in the cluster's range", StoreConfig{NodeName: "node-a", PodRanges: prefixes("10.244.0.0/16")}, nil, "10.244.1.7", false, true},
		{"behind the pods' bridge", StoreConfig{PodInterface: "cni"}, nil, "10.88.3.4", false, true},
		{"behind another device", StoreConfig{PodInterface: "cni"}, nil, "192.0.2.11", false, false},
		{"listed", StoreConfig{}, prefixes("198.51.100.0/24"), "198.51.100.1", false, true},
		{"a pod that is not listed", StoreConfig{NodeName: "node-a"}, prefixes("198.51.100.0/24"), "10.244.1.7", false, false},
		{"the node while others are listed", StoreConfig{}, prefixes("198.51.100.0/24"), "192.0.2.10", false, true},
	} {
		store := NewStore(c.store)
		l := newClients(&Config{Store: store, Allow: c.allow, Now: time.Now})
		from := (&asker{addr: netip.AddrPortFrom(netip.MustParseAddr(c.from), 1)}).client()
		if l.find(from, false) != nil && !from.IsLoopback() && c.allow == nil && c.store.PodRanges == nil {
			t.Errorf("%s: may ask before anything is known", c.what)
		}
		store.Apply(nodeEvents())
		for range 2 { // the second time from memory
			if got := l.find(from, c.intercepted) != nil; got != c.may {
				t.Errorf("%s: may ask is %t", c.what, got)
			}
		}
		if c.intercepted && l.find(from, false) != nil {
			t.Errorf("%s: who came by interception may ask directly", c.what)
		}
	}
}

// TestPodsOfAnotherPlugin: a network plugin that does not use the Node's ranges shows
// by the endpoints of this node; and only the families that the Node has are narrowed.
func TestPodsOfAnotherPlugin(t *testing.T) {
	store := NewStore(StoreConfig{NodeName: "node-a", PodRanges: prefixes("10.244.0.0/16", "fd01::/64")})
	events := nodeEvents()
	events[0].Node.Value.PodCIDRs = prefixes("10.244.1.0/24")
	store.Apply(events)
	asks := func(from string, want bool) {
		t.Helper()
		if got := store.isPod(netip.MustParseAddr(from)); got != want {
			t.Errorf("%s is a pod: %t", from, got)
		}
	}
	asks("fd01::7", true)
	endpoint := func(node, addr string) {
		key := model.SliceKey{Namespace: "d", Name: "web-x"}
		store.Apply([]model.Event{{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key, Value: &model.Slice{Key: key,
			Service: model.ServiceKey{Namespace: "d", Name: "web"}, Endpoints: []model.Endpoint{{Node: node, Addr: netip.MustParseAddr(addr)}}}}}})
	}
	for _, c := range []struct {
		node, addr string
		want       bool
	}{
		{"node-b", "10.244.2.8", false},   // another node's
		{"node-a", "10.244.1.8", false},   // of the Node's range
		{"node-a", "198.51.100.8", false}, // of no range of pods
		{"node-a", "192.0.2.10", false},   // the node's own, of hostNetwork
		{"node-a", "10.244.2.8", true},
	} {
		endpoint(c.node, c.addr)
		asks("10.244.2.7", c.want)
		asks("198.51.100.8", false)
	}
}

// TestStranger: a client that may not ask is refused, without a question that could be long.
func TestStranger(t *testing.T) {
	s := newSink(t)
	b, err := question("web.d.svc.cluster.local", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	s.srv.serve(t.Context(), b, &asker{addr: netip.MustParseAddrPort("198.51.100.1:9"), udp: s.out})
	m := s.srv.metrics
	if value(m.dropped.WithLabelValues(dropNotAllowed)) != 1 || value(m.requests[zoneOther][typeIndex(0)][rcodeIndex(dns.RcodeRefused)]) != 1 || value(m.requests[zoneCluster][0][0]) != 0 {
		t.Error("a stranger is not refused, or not counted")
	}
}

func TestRate(t *testing.T) {
	now := time.Unix(1000, 0)
	store := NewStore(StoreConfig{})
	l := newClients(&Config{Store: store, Allow: prefixes("10.0.0.0/8"), ClientRate: 1000, Now: func() time.Time { return now }})
	ask := func(a string) bool { return l.inRate(l.find(netip.MustParseAddr(a), false)) }
	passed := 0
	for range 3000 {
		if ask("10.0.0.1") {
			passed++
		}
	}
	if passed != 500 { // half a second's worth at once
		t.Errorf("%d pass at once", passed)
	}
	if !ask("10.0.0.2") {
		t.Error("another client suffers")
	}
	now = now.Add(100 * time.Millisecond)
	for passed = 0; ask("10.0.0.1"); passed++ {
	}
	if passed != 100 {
		t.Errorf("%d pass after 100 ms", passed)
	}
	for range 3000 {
		if !ask("127.0.0.1") {
			t.Fatal("the node itself is bounded")
		}
	}
}

func TestManyAddresses(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newClients(&Config{Store: NewStore(StoreConfig{}), Allow: prefixes("10.0.0.0/8"), ClientRate: 10, Now: func() time.Time { return now }})
	for i := range maxClients + 100 {
		l.inRate(l.find(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), false))
	}
	if len(l.known) > maxClients || l.find(netip.MustParseAddr("10.9.9.9"), false) != l.rest {
		t.Errorf("%d clients are remembered", len(l.known))
	}
	now = now.Add(time.Minute)
	if c := l.find(netip.MustParseAddr("10.9.9.9"), false); c == l.rest || len(l.known) != 1 {
		t.Errorf("silent clients are not forgotten: %d", len(l.known))
	}
}

// TestOneClientsFlights: a pod that asks for names which no server answers does not
// take external names from others.
func TestOneClientsFlights(t *testing.T) {
	release := make(chan struct{})
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) {
		if strings.HasPrefix(req.Question[0].Name, "slow") {
			<-release
		}
		reply(w, req, req.Question[0].Name+" 60 IN A 192.0.2.1")
	})
	t.Cleanup(func() { close(release) })
	r := newRig(t, func(c *Config) { c.Upstreams = []netip.AddrPort{up} })
	u, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9)}, net.UDPAddrFromAddrPort(r.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	buf := make([]byte, 512)
	for i := 0; value(r.store.metrics.forwards.WithLabelValues(forwardShedClient)) == 0; i++ {
		if i > 20*maxFlightsPerClient {
			t.Fatal("one client has no bound")
		}
		b, _ := question(fmt.Sprintf("slow%d.example.org", i), dns.TypeA).Pack()
		if _, err := u.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = u.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, _ = u.Read(buf)
	}
	c := dns.Client{Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 8)}}, Timeout: 30 * time.Second}
	for i := range 40 {
		m, _, err := c.Exchange(question(fmt.Sprintf("fast%d.example.org", i), dns.TypeA), r.addr.String())
		if err != nil || len(m.Answer) != 1 {
			t.Fatalf("another client's query %d: %v %v", i, m, err)
		}
	}
}

// TestAllFlights: there is a bound for all clients together, too.
func TestAllFlights(t *testing.T) {
	asked := make(chan struct{}, 2)
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) { asked <- struct{}{}; reply(w, req) })
	f := newForwarder([]netip.AddrPort{up}, &Config{Metrics: NewMetrics(), Now: time.Now})
	f.guard = &guard{}
	for i := range maxForwards {
		f.flight[cacheKey{name: fmt.Sprint(i)}] = &flight{}
	}
	shed := false
	f.ask(t.Context(), question("one-more.example.org", dns.TypeA), func(m *dns.Msg) { shed = m == nil })
	f.asking.Wait()
	if !shed || value(f.metrics.forwards.WithLabelValues(forwardShed)) != 1 || len(asked) > 0 {
		t.Errorf("with %d in flight one more is asked", maxForwards)
	}
	delete(f.flight, cacheKey{name: "0"})
	f.ask(t.Context(), question("one-more.example.org", dns.TypeA), func(*dns.Msg) {})
	f.asking.Wait()
	if len(asked) != 1 {
		t.Error("with room for one more it is not asked")
	}
	full := &flight{waiting: make([]func(*dns.Msg), maxForwards)}
	f.flight[keyOf(question("same.example.org", dns.TypeA))] = full
	shed = false
	f.ask(t.Context(), question("same.example.org", dns.TypeA), func(m *dns.Msg) { shed = m == nil })
	if !shed || len(full.waiting) > maxForwards {
		t.Error("one question has no bound of clients")
	}
}

// TestWrongAnswer: an answer to another question is none.
func TestWrongAnswer(t *testing.T) {
	for what, change := range map[string]func(*dns.Msg){
		"another name":  func(m *dns.Msg) { m.Question[0].Name = "evil.example.org." },
		"another type":  func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"another class": func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no question":   func(m *dns.Msg) { m.Question = nil },
		"no response":   func(m *dns.Msg) { m.Response = false },
	} {
		up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) {
			m := new(dns.Msg)
			m.SetReply(req)
			rr, _ := dns.NewRR("www.example.org. 60 IN A 192.0.2.66")
			m.Answer = []dns.RR{rr}
			change(m)
			_ = w.WriteMsg(m)
		})
		r := newRig(t, func(c *Config) { c.Upstreams = []netip.AddrPort{up} })
		if m := r.ask(t, question("www.example.org", dns.TypeA), "udp"); m.Rcode != dns.RcodeServerFailure || len(m.Answer) > 0 {
			t.Errorf("%s is believed: %v", what, m)
		}
		r.stop()
	}
}

// TestFault: a query that makes the server fail is lost alone, over both protocols.
func TestFault(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	r := newRig(t, func(c *Config) {
		c.Healthy = func() bool { panic("for the test") }
		c.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	})
	svc := headlessService(nil)
	svc.Created = time.Now().Unix()
	r.store.Apply([]model.Event{serviceEvent(svc)})
	conn, err := dns.Dial("tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range 2 * maxPipelined { // of one connection: each fault releases its slot
		c := dns.Client{Net: "tcp", Timeout: 30 * time.Second}
		if a, _, err := c.ExchangeWithConn(question(hostName, dns.TypeA), conn); err != nil || a.Rcode != dns.RcodeServerFailure {
			t.Fatalf("query %d: got %v, %v", i, a, err)
		}
	}
	if a := r.ask(t, question(hostName, dns.TypeA), "udp"); a.Rcode != dns.RcodeServerFailure {
		t.Errorf("got %v", a)
	}
	r.serving(t)
	if n := value(r.store.metrics.panics); n != 2*maxPipelined+1 {
		t.Errorf("%d faults counted", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "for the test"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

// TestNoDescriptors: whatever keeps the server from listening, it goes on trying.
func TestNoDescriptors(t *testing.T) {
	metrics := NewMetrics()
	srv, err := New(Config{Addrs: []netip.AddrPort{freeAddr(t)}, Store: NewStore(StoreConfig{Metrics: metrics})})
	if err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(t.Context()) }()
	select {
	case err := <-ended:
		t.Errorf("ended: %v", err)
	case <-time.After(2 * retryBind): // no event reports that an attempt has failed
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if value(metrics.serving) != 0 {
		t.Error("serving is 1")
	}
	select {
	case <-srv.Ready():
	case <-time.After(time.Minute):
		t.Fatal("does not listen once it can")
	}
	if value(metrics.serving) != 1 {
		t.Error("serving is 0")
	}
}

// TestSweepKeepsFlights: a client with queries at other servers is not forgotten, because its bound would begin again.
func TestSweepKeepsFlights(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newClients(&Config{Store: NewStore(StoreConfig{}), Allow: prefixes("10.0.0.0/8"), ClientRate: 10, Now: func() time.Time { return now }})
	busy, idle := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	l.find(busy, false).takeOff()
	l.find(idle, false)
	now = now.Add(time.Hour)
	if l.sweep(); l.known[busy] == nil || l.known[idle] != nil {
		t.Errorf("known after a sweep: %v", l.known)
	}
}
