package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// vice is one way in which a server for other names misbehaves.
type vice string

const (
	formerrHeader  vice = "FORMERR to EDNS, the header alone"
	formerrEDNS    vice = "FORMERR to EDNS"
	notimpEDNS     vice = "NOTIMP to EDNS"
	silentEDNS     vice = "silent to EDNS"
	formerrWithOPT vice = "FORMERR with an OPT record"
	oversize       vice = "longer over UDP than the query allows"
	noTCP          vice = "no TCP"
	tcpSilent      vice = "silent over TCP"
	slow           vice = "answers after 2.5 s"
	refuses        vice = "REFUSED"
	servfail       vice = "SERVFAIL"
	dead           vice = "does not listen"
)

// viceServer is an upstream with vices. big.example.org has 100 addresses, other names one.
type viceServer struct {
	vices       []vice
	edns, plain atomic.Int64 // queries
}

func (v *viceServer) has(one vice) bool { return slices.Contains(v.vices, one) }

func (v *viceServer) start(t *testing.T) netip.AddrPort {
	t.Helper()
	addr := freeAddr(t)
	if v.has(dead) {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 3}), addr.Port()) // no test listens there
	}
	for _, proto := range []string{"udp", "tcp"} {
		if proto == "tcp" && v.has(noTCP) {
			continue
		}
		started := make(chan struct{})
		s := &dns.Server{Addr: addr.String(), Net: proto, Handler: v, NotifyStartedFunc: func() { close(started) }}
		go func() { _ = s.ListenAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return addr
}

func (v *viceServer) ServeDNS(w dns.ResponseWriter, req *dns.Msg) {
	opt, tcp := req.IsEdns0(), w.RemoteAddr().Network() == "tcp"
	if opt == nil {
		v.plain.Add(1)
	} else {
		v.edns.Add(1)
	}
	m := new(dns.Msg)
	m.SetReply(req)
	switch {
	case opt != nil && v.has(silentEDNS), tcp && v.has(tcpSilent):
		return
	case opt != nil && v.has(formerrHeader):
		m.Rcode, m.Question = dns.RcodeFormatError, nil
	case opt != nil && (v.has(formerrEDNS) || v.has(formerrWithOPT)):
		if m.Rcode = dns.RcodeFormatError; v.has(formerrWithOPT) {
			m.SetEdns0(1232, false)
		}
	case opt != nil && v.has(notimpEDNS):
		m.Rcode = dns.RcodeNotImplemented
	case v.has(refuses):
		m.Rcode = dns.RcodeRefused
	case v.has(servfail):
		m.Rcode = dns.RcodeServerFailure
	default:
		v.fill(m)
	}
	if v.has(slow) {
		time.Sleep(2500 * time.Millisecond)
	}
	if !tcp && !v.has(oversize) {
		size := 512
		if opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m)
}

func (v *viceServer) fill(m *dns.Msg) {
	n := 1
	if m.Question[0].Name == "big.example.org." {
		n = 100
	}
	for i := range n {
		rr, _ := dns.NewRR(fmt.Sprintf("%s 30 IN A 192.0.2.%d", m.Question[0].Name, i+1))
		m.Answer = append(m.Answer, rr)
	}
}

// TestVices: what clients see of servers that misbehave. Resolvers give up after 5 s.
func TestVices(t *testing.T) {
	const all, some = 100, -1 // some: at least one address, and the TC bit
	var asks []func()
	for _, c := range []struct {
		servers [][]vice
		name    string
		rcode   int
		answers int
	}{
		{[][]vice{{}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{}}, "big", dns.RcodeSuccess, all},
		{[][]vice{{formerrHeader}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{formerrEDNS}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{formerrEDNS}}, "big", dns.RcodeSuccess, all},
		{[][]vice{{notimpEDNS}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{silentEDNS}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{silentEDNS}, {dead}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{silentEDNS}, {silentEDNS}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{formerrWithOPT}}, "small", dns.RcodeFormatError, 0},
		{[][]vice{{oversize}}, "big", dns.RcodeSuccess, all},
		{[][]vice{{noTCP}}, "big", dns.RcodeSuccess, some},
		{[][]vice{{tcpSilent}}, "big", dns.RcodeSuccess, some},
		{[][]vice{{oversize, noTCP}}, "big", dns.RcodeSuccess, some},
		{[][]vice{{noTCP}, {servfail}}, "big", dns.RcodeSuccess, some},
		{[][]vice{{noTCP}, {}}, "big", dns.RcodeSuccess, all},
		{[][]vice{{slow}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{slow}, {servfail}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{refuses}, {}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{servfail}, {refuses}, {}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{dead}, {dead}, {}}, "small", dns.RcodeSuccess, 1},
		{[][]vice{{refuses}}, "small", dns.RcodeRefused, 0},
		{[][]vice{{servfail}}, "small", dns.RcodeServerFailure, 0},
		{[][]vice{{dead}}, "small", dns.RcodeServerFailure, 0},
	} {
		var list []netip.AddrPort
		for _, v := range c.servers {
			list = append(list, (&viceServer{vices: v}).start(t))
		}
		r := newRig(t, func(c *Config) { c.Upstreams = list })
		for _, proto := range []string{"udp", "tcp"} {
			asks = append(asks, func() {
				m := r.ask(t, question(c.name+".example.org", dns.TypeA), proto)
				cut := c.answers == some || c.answers == all && proto == "udp"
				if m.Rcode != c.rcode || m.Truncated != cut || cut && len(m.Answer) == 0 || !cut && len(m.Answer) != c.answers {
					t.Errorf("%q %s over %s: %s, %d records, TC %t", c.servers, c.name, proto, dns.RcodeToString[m.Rcode], len(m.Answer), m.Truncated)
				}
			})
		}
	}
	var asked sync.WaitGroup
	for _, ask := range asks { // at once: most of them wait
		asked.Go(ask)
	}
	asked.Wait()
}

// TestEDNSIsRemembered: a server that does not take EDNS is asked without it for plainFor, and then with it again.
func TestEDNSIsRemembered(t *testing.T) {
	for _, c := range []struct {
		what  vice
		first int // queries until it is known
	}{{formerrHeader, 1}, {silentEDNS, silencesBeforePlain}} {
		t.Run(string(c.what), func(t *testing.T) {
			t.Parallel()
			v := &viceServer{vices: []vice{c.what}}
			var ahead atomic.Int64
			f := newForwarder([]netip.AddrPort{v.start(t)}, &Config{Metrics: NewMetrics(), Now: func() time.Time { return time.Unix(1000+ahead.Load(), 0) }})
			f.guard = &guard{}
			defer f.asking.Wait()
			ask := func(n int) (edns int64) {
				before := v.edns.Load()
				for i := range n {
					if m := f.try(t.Context(), outgoing(question(fmt.Sprint("n", i, ".example.org"), dns.TypeA))); m == nil || len(m.Answer) != 1 {
						t.Fatalf("query %d: got %v", i, m)
					}
				}
				return v.edns.Load() - before
			}
			if n := ask(c.first); n != int64(c.first) {
				t.Errorf("%d queries with EDNS before it is known", n)
			}
			if n := ask(3); n != 0 {
				t.Errorf("%d queries with EDNS once it is known", n)
			}
			ahead.Store(int64(plainFor / time.Second))
			if n := ask(1); n != 1 {
				t.Errorf("%d queries with EDNS after %s", n, plainFor)
			}
			if n := ask(1); n != 0 {
				t.Errorf("%d queries with EDNS after that", n)
			}
		})
	}
}

// TestProbesLearnEDNS: where all servers are silent to EDNS, so that no query reaches one twice, probes find it out.
func TestProbesLearnEDNS(t *testing.T) {
	t.Parallel()
	v := &viceServer{vices: []vice{silentEDNS}}
	f := newForwarder([]netip.AddrPort{v.start(t)}, &Config{Metrics: NewMetrics(), Now: time.Now})
	f.guard = &guard{}
	u := f.upstreams()[0]
	u.fails, u.silences = downAfter, silencesBeforePlain-1
	if f.probe(t.Context(), 0, u); !u.healthy() {
		t.Error("a server that answers without EDNS counts as failing")
	}
	if !u.plain(time.Now()) {
		t.Error("it is asked with EDNS")
	}
}

// TestNextServer: REFUSED or SERVFAIL of one server is not the answer while another has one.
func TestNextServer(t *testing.T) {
	for _, v := range []vice{refuses, servfail} {
		first, second := &viceServer{vices: []vice{v}}, &viceServer{}
		f := newForwarder([]netip.AddrPort{first.start(t), second.start(t)}, &Config{Metrics: NewMetrics(), Now: time.Now})
		f.guard = &guard{}
		f.upstreams()[1].fails = downAfter // so that the other one is asked first
		if m := f.try(t.Context(), outgoing(question("www.example.org", dns.TypeA))); m == nil || len(m.Answer) != 1 {
			t.Errorf("after %s of the first: %v", v, m)
		}
		f.asking.Wait()
	}
}
