package dns

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// sink is a server without sockets of its own, and a client to catch answers.
type sink struct {
	srv    *Server
	out    *net.UDPConn
	client *net.UDPConn
}

func newSink(f testing.TB) *sink {
	store := NewStore(StoreConfig{})
	svc := headlessService(nil)
	svc.Created = time.Now().Unix()
	store.Apply([]model.Event{
		serviceEvent(svc), sliceEvent(flux(), endpoint("10.1.0.1", "flux-0"), endpoint("10.1.0.2", "")),
		serviceEvent(model.Service{Key: model.ServiceKey{Namespace: "d", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}}),
		serviceEvent(model.Service{Key: model.ServiceKey{Namespace: "d", Name: "out"}, ExternalName: "web.d.svc.cluster.local"}),
	})
	srv, err := New(Config{Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}, Store: store, Park: -1, PodRecords: true})
	if err != nil {
		f.Fatal(err)
	}
	s := &sink{srv: srv}
	for _, u := range []**net.UDPConn{&s.out, &s.client} {
		if *u, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = (*u).Close() })
	}
	return s
}

// FuzzServe: any packet is answered at most once, with a message that parses,
// fits, has the query's id and is an answer; well-formed questions always are.
func FuzzServe(f *testing.F) {
	for _, q := range []struct {
		name  string
		qtype uint16
	}{
		{"web.d.svc.cluster.local", dns.TypeA}, {"_http._tcp.web.d.svc.cluster.local", dns.TypeSRV}, {"out.d.svc.cluster.local", dns.TypeAAAA},
		{"flux-0.flux.jobs.svc.cluster.local", dns.TypeANY}, {"1.0.96.10.in-addr.arpa", dns.TypePTR}, {"_status.flux.jobs.svc.cluster.local", dns.TypeTXT},
		{"10-1-0-1.d.pod.cluster.local", dns.TypeA}, {"cluster.local", dns.TypeAXFR},
	} {
		m := question(q.name, q.qtype)
		m.SetEdns0(1232, true)
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := newSink(f)
	f.Fuzz(func(t *testing.T, packet []byte) {
		s.srv.serve(t.Context(), packet, &asker{addr: s.client.LocalAddr().(*net.UDPAddr).AddrPort(), udp: s.out})
		buf := make([]byte, 65536)
		asked := len(packet) >= headerSize && packet[2]&0x80 == 0
		patience := time.Millisecond // loopback delivers in the sender's call
		if asked {
			patience = 30 * time.Second
		}
		_ = s.client.SetReadDeadline(time.Now().Add(patience))
		n, err := s.client.Read(buf)
		var q dns.Msg
		if err != nil {
			if asked {
				t.Fatalf("no answer to % x", packet)
			}
			return
		}
		var a dns.Msg
		if err := a.Unpack(buf[:n]); err != nil {
			t.Fatalf("answer does not parse: %v", err)
		}
		if !asked || !a.Response || n > maxUDPAnswer || buf[0] != packet[0] || buf[1] != packet[1] {
			t.Fatalf("query % x, answer of %d bytes %v", packet, n, &a)
		}
		if q.Unpack(packet) == nil && check(&q) == dns.RcodeSuccess && len(a.Question) != 1 {
			t.Fatalf("question is missing: %v", &a)
		}
	})
}

// FuzzResolve: any name and type get an answer that is either positive, or
// negative with a SOA, and NXDOMAIN never has records.
func FuzzResolve(f *testing.F) {
	f.Add("flux-0.flux.jobs.svc", uint16(1))
	f.Add("_zmq._tcp.flux.jobs.svc", uint16(33))
	f.Add("_.._svc.", uint16(255))
	z := newSink(f).srv.zone
	f.Fuzz(func(t *testing.T, rel string, qtype uint16) {
		a := z.resolve(lookup{name: lower(rel) + z.suffix, qtype: qtype, room: dns.MaxMsgSize})
		if len(a.rrs) == 0 && !a.soa || a.rcode == dns.RcodeNameError && len(a.rrs) > 0 {
			t.Fatalf("%q %d: %+v", rel, qtype, a)
		}
	})
}

// FuzzPark: any packet that is parked is answered once: when its Service changes, or
// when the parking ends. Nothing stays behind.
func FuzzPark(f *testing.F) {
	for _, q := range []struct {
		name  string
		qtype uint16
	}{
		{"h.flux.jobs.svc.cluster.local", dns.TypeA}, {"flux.jobs.svc.cluster.local", dns.TypeAAAA},
		{"_zmq._tcp.flux.jobs.svc.cluster.local", dns.TypeSRV}, {"_status.flux.jobs.svc.cluster.local", dns.TypeTXT}, {"_status.no.jobs.svc.cluster.local", dns.TypeTXT},
	} {
		m := question(q.name, q.qtype)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{(&StatusQuestion{Pods: 2, Hosts: []string{"h", "i"}, Wait: time.Second, List: true}).Option()}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	s := newSink(f)
	s.srv.cfg.Park = MaxPark
	s.srv.cfg.Store.notify(s.srv.parking.changed)
	svc := headlessService(nil)
	svc.Created = time.Now().Add(time.Hour).Unix() // young for as long as this may run
	empty := []model.Event{serviceEvent(svc), sliceEvent(flux())}
	full := []model.Event{sliceEvent(flux(), endpoint("10.1.0.1", "h"), endpoint("10.1.0.2", "i"))}
	f.Fuzz(func(t *testing.T, packet []byte) {
		s.srv.cfg.Store.Apply(empty)
		clear(s.srv.parking.paused)
		from := &asker{addr: s.client.LocalAddr().(*net.UDPAddr).AddrPort(), udp: s.out}
		s.srv.serve(t.Context(), packet, from)
		parked := len(s.srv.parking.waiters)
		s.srv.cfg.Store.Apply(full)
		for _, q := range s.srv.parking.affected() {
			s.srv.retry(q, false)
		}
		for _, w := range s.srv.parking.waiters {
			s.srv.retry(w.q, true)
		}
		if p := s.srv.parking; len(p.waiters)+len(p.byKey)+len(p.clients)+len(p.pairs)+len(p.dirty) != 0 {
			t.Fatalf("something stays behind: %+v", p)
		}
		asked := len(packet) >= headerSize && packet[2]&0x80 == 0
		if n := s.answers(t, asked); n != 1 && asked || n != 0 && !asked {
			t.Fatalf("%d answers; %d was parked", n, parked)
		}
	})
}

// answers counts what has been sent to the client. Loopback delivers in the
// sender's call, so only the first needs patience.
func (s *sink) answers(t *testing.T, patient bool) (n int) {
	buf := make([]byte, 65536)
	patience := time.Millisecond
	if patient {
		patience = 30 * time.Second
	}
	for {
		_ = s.client.SetReadDeadline(time.Now().Add(patience))
		size, err := s.client.Read(buf)
		if err != nil {
			return n
		}
		var a dns.Msg
		if err := a.Unpack(buf[:size]); err != nil || size > maxUDPAnswer {
			t.Fatalf("an answer of %d bytes: %v", size, err)
		}
		n, patience = n+1, 100*time.Microsecond
	}
}

func FuzzReverse(f *testing.F) {
	f.Add("1.0.96.10.in-addr.arpa.")
	f.Add("1.0.0.0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa.")
	f.Fuzz(func(t *testing.T, name string) {
		ip, ok := reverseAddr(name)
		if !ok {
			return
		}
		back, err := dns.ReverseAddr(ip.String())
		if err != nil || ip.Is4() && back != name || ip.Is6() && !ip.Is4In6() && lower(name) == name && back != name {
			t.Fatalf("%q is %s is %q", name, ip, back)
		}
	})
}
