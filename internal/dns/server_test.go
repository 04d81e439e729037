package dns

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// rig is a server on loopback.
type rig struct {
	store *Store
	srv   *Server
	addr  netip.AddrPort
	stop  func()
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{store: NewStore(StoreConfig{}), addr: freeAddr(t)}
	cfg := Config{Addrs: []netip.AddrPort{r.addr}, Store: r.store}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.srv, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.srv.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(r.stop)
	select {
	case <-r.srv.Ready():
	case err := <-done:
		t.Fatalf("server ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("server does not start")
	}
	return r
}

// freeAddr returns an address at which neither TCP nor UDP is served.
func freeAddr(t testing.TB) netip.AddrPort {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		u, err := net.ListenPacket("udp", l.Addr().String())
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return netip.MustParseAddrPort(l.Addr().String())
		}
	}
	t.Fatal("no port is free for TCP and UDP")
	return netip.AddrPort{}
}

func question(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	return m
}

// ask fails the test if no answer comes.
func (r *rig) ask(t testing.TB, m *dns.Msg, proto string) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: proto, Timeout: 30 * time.Second}
	a, _, err := c.Exchange(m, r.addr.String())
	if err != nil {
		t.Fatalf("%s %v: %v", proto, m.Question, err)
	}
	return a
}

// serving asserts that the server still answers, by both protocols.
func (r *rig) serving(t testing.TB) {
	t.Helper()
	for _, proto := range []string{"udp", "tcp"} {
		a := r.ask(t, question("dns-version.cluster.local", dns.TypeTXT), proto)
		if len(a.Answer) != 1 {
			t.Fatalf("%s: got %v", proto, a)
		}
	}
}

func serviceEvent(s model.Service) model.Event {
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: s.Key, Value: &s}}
}

func sliceEvent(svc model.ServiceKey, endpoints ...model.Endpoint) model.Event {
	key := model.SliceKey{Namespace: svc.Namespace, Name: svc.Name + "-1"}
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key, Value: &model.Slice{
		Key: key, Service: svc, Family: model.IPv4, Headless: true, Endpoints: endpoints,
		Ports: []model.SlicePort{{Name: "zmq", Protocol: model.TCP, Port: 8050}},
	}}}
}

func flux() model.ServiceKey { return model.ServiceKey{Namespace: "jobs", Name: "flux"} }

func headlessService(park *time.Duration) model.Service {
	return model.Service{Key: flux(), Headless: true, Extras: model.Extras{DNSPark: park}}
}

func endpoint(addr, host string) model.Endpoint {
	return model.Endpoint{Addr: netip.MustParseAddr(addr), Hostname: host, Ready: true, Serving: true}
}

func addresses(m *dns.Msg) (out []string) {
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			out = append(out, rr.A.String())
		case *dns.AAAA:
			out = append(out, rr.AAAA.String())
		}
	}
	return out
}
