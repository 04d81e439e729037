package dns

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// upstreamServer answers by both protocols with handler.
func upstreamServer(t *testing.T, handler dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	addr := freeAddr(t)
	for _, proto := range []string{"udp", "tcp"} {
		started := make(chan struct{})
		s := &dns.Server{Addr: addr.String(), Net: proto, Handler: handler, NotifyStartedFunc: func() { close(started) }}
		go func() { _ = s.ListenAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return addr
}

func reply(w dns.ResponseWriter, req *dns.Msg, records ...string) {
	m := new(dns.Msg)
	m.SetReply(req)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	if len(records) == 0 {
		m.Rcode = dns.RcodeNameError
	}
	_ = w.WriteMsg(m)
}

func TestForward(t *testing.T) {
	var asked atomic.Int64
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) {
		name := req.Question[0].Name
		if _, tcp := w.RemoteAddr().(interface{ AddrPort() netip.AddrPort }); !tcp {
			t.Error("no address")
		}
		switch {
		case name == "big.example.org." && w.RemoteAddr().Network() == "udp":
			m := new(dns.Msg)
			m.SetReply(req)
			m.Truncated = true
			_ = w.WriteMsg(m)
		case name == "no.example.org.":
			asked.Add(1)
			reply(w, req)
		default:
			asked.Add(1)
			reply(w, req, name+" 60 IN A 192.0.2.1")
		}
	})
	r := newRig(t, func(c *Config) { c.Upstreams = []netip.AddrPort{freeAddr(t), up} })
	for _, name := range []string{"www.example.org", "WWW.example.org", "big.example.org"} {
		m := r.ask(t, question(name, dns.TypeA), "udp")
		if got := addresses(m); len(got) != 1 || got[0] != "192.0.2.1" || m.Truncated || m.Question[0].Name != name+"." {
			t.Errorf("%s: got %v", name, m)
		}
	}
	if n := asked.Load(); n > 3 { // one of them our probe
		t.Errorf("upstream was asked %d times: the cache does not work", n)
	}
	before := asked.Load()
	for range 2 {
		if m := r.ask(t, question("no.example.org", dns.TypeA), "udp"); m.Rcode != dns.RcodeNameError {
			t.Errorf("got %v", m)
		}
	}
	if n := asked.Load() - before; n != 2 {
		t.Errorf("a negative answer was kept: %d asked of 2", n)
	}
	m := question("www.example.org", dns.TypeA)
	m.RecursionDesired = false
	if a := r.ask(t, m, "udp"); a.Rcode != dns.RcodeRefused {
		t.Errorf("without RD: got %v", a)
	}
}

// TestAlias: the records behind an ExternalName come along, as the pod's
// resolver does not ask again.
func TestAlias(t *testing.T) {
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) { reply(w, req, req.Question[0].Name+" 60 IN A 192.0.2.7") })
	r := newRig(t, func(c *Config) { c.Upstreams = []netip.AddrPort{up} })
	alias := func(name, to string) model.Event {
		return serviceEvent(model.Service{Key: model.ServiceKey{Namespace: "d", Name: name}, ExternalName: to})
	}
	r.store.Apply([]model.Event{alias("out", "db.example.org"), alias("a", "b.d.svc.cluster.local"), alias("b", "a.d.svc.cluster.local")})
	if m := r.ask(t, question("out.d.svc.cluster.local", dns.TypeA), "udp"); len(m.Answer) != 2 || len(addresses(m)) != 1 {
		t.Errorf("got %v", m)
	}
	if m := r.ask(t, question("a.d.svc.cluster.local", dns.TypeA), "udp"); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("a circle gives %v", m)
	}
}

// TestLoop: a server that sends our questions back to us, openly or with every
// name changed in case, costs one time-out and no storm.
func TestLoop(t *testing.T) {
	var self atomic.Pointer[netip.AddrPort]
	var passed atomic.Int64
	up := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) {
		passed.Add(1)
		c := dns.Client{Timeout: time.Second}
		out := req.Copy()
		out.Id = dns.Id()
		if m, _, err := c.Exchange(out, self.Load().String()); err == nil {
			m.Id = req.Id
			_ = w.WriteMsg(m)
		}
	})
	addr := freeAddr(t)
	self.Store(&addr)
	r := newRig(t, func(c *Config) { c.Upstreams = []netip.AddrPort{up}; c.Addrs = []netip.AddrPort{addr} })
	r.addr = addr
	if m := r.ask(t, question("www.example.org", dns.TypeA), "udp"); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("got %v", m)
	}
	if n := passed.Load(); n > 10 {
		t.Errorf("%d questions went round", n)
	}
	r.serving(t)
}

// TestBeforeSync: a cluster name that may exist is not denied.
func TestBeforeSync(t *testing.T) {
	cluster := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) { reply(w, req, req.Question[0].Name+" 5 IN A 10.0.0.9") })
	for _, upstreams := range [][]netip.AddrPort{nil, {cluster}} {
		store := NewStore(StoreConfig{Sources: []string{"k8s"}})
		r := newRig(t, func(c *Config) { c.Store, c.Cluster = store, func() []netip.AddrPort { return upstreams } })
		m := r.ask(t, question("web.default.svc.cluster.local", dns.TypeA), "udp")
		if len(upstreams) == 0 && m.Rcode != dns.RcodeServerFailure || len(upstreams) > 0 && len(m.Answer) != 1 {
			t.Errorf("got %v", m)
		}
		store.Apply([]model.Event{{Synced: "k8s"}})
		if m := r.ask(t, question("web.default.svc.cluster.local", dns.TypeA), "udp"); m.Rcode != dns.RcodeNameError {
			t.Errorf("after sync: got %v", m)
		}
	}
}

func TestCacheCountsDown(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newCache(func() time.Time { return now })
	m := question("a.example.org", dns.TypeA)
	m.Response = true
	rr, err := dns.NewRR("a.example.org. 20 IN A 192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	m.Answer = []dns.RR{rr}
	k := keyOf(m)
	c.put(k, m)
	now = now.Add(15 * time.Second)
	if got := c.get(k); got == nil || got.Answer[0].Header().Ttl != 5 {
		t.Errorf("got %v", got)
	}
	now = now.Add(6 * time.Second)
	if got := c.get(k); got != nil {
		t.Errorf("got %v after its TTL", got)
	}
}
