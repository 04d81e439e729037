package dns

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

func TestBadQueries(t *testing.T) {
	r := newRig(t, nil)
	const name = "dns-version.cluster.local"
	edit := func(qtype uint16, f func(*dns.Msg)) *dns.Msg {
		m := question(name, qtype)
		f(m)
		return m
	}
	for _, c := range []struct {
		what  string
		msg   *dns.Msg
		rcode int
	}{
		{"class CH", edit(dns.TypeTXT, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		{"class ANY", edit(dns.TypeTXT, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		{"zone transfer", question("cluster.local", dns.TypeAXFR), dns.RcodeRefused},
		{"incremental transfer", question("cluster.local", dns.TypeIXFR), dns.RcodeRefused},
		{"update", edit(dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		{"notify", edit(dns.TypeSOA, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		{"no question", edit(dns.TypeTXT, func(m *dns.Msg) { m.Question = nil }), dns.RcodeFormatError},
		{"two questions", edit(dns.TypeTXT, func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		{"answers in the query", edit(dns.TypeTXT, func(m *dns.Msg) { m.Answer = minimalANY(name + ".").rrs }), dns.RcodeFormatError},
		{"EDNS 1", edit(dns.TypeTXT, func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers},
		{"two OPT records", edit(dns.TypeTXT, func(m *dns.Msg) { m.SetEdns0(1232, false); m.SetEdns0(1232, false) }), dns.RcodeFormatError},
		{"OPT with an owner", edit(dns.TypeTXT, func(m *dns.Msg) { m.SetEdns0(1232, false); m.Extra[0].Header().Name = "a." }), dns.RcodeFormatError},
		{"not our name", question("example.org", dns.TypeA), dns.RcodeRefused},
		{"type 0", question(name, dns.TypeNone), dns.RcodeFormatError},
		{"odd bytes in the name", question(`a\000b\255.c\.d.svc.cluster.local`, dns.TypeA), dns.RcodeNameError},
		{"longest name", question(strings.Repeat("a123456789.", 21)+"cluster.local", dns.TypeA), dns.RcodeNameError},
	} {
		for _, proto := range []string{"udp", "tcp"} {
			if a := r.ask(t, c.msg, proto); a.Rcode != c.rcode {
				t.Errorf("%s over %s: got %s", c.what, proto, dns.RcodeToString[a.Rcode])
			}
		}
	}
	r.serving(t)
}

// What is no query at all gets no answer, or an error, and does no harm.
func TestGarbage(t *testing.T) {
	r := newRig(t, nil)
	conn, err := net.Dial("udp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	query, err := question("web.default.svc.cluster.local", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer := append([]byte{}, query...)
	answer[2] |= 0x80
	loop := append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 0xc0, 12, 0, 1, 0, 1) // a name that is its own tail
	for _, b := range [][]byte{{}, {0}, query[:11], query[:len(query)-3], answer, loop, make([]byte, 65000), append(query, make([]byte, 5000)...)} {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	r.serving(t)
}

// TestSlowTCP: clients that send half a message, or never read, or come in
// large numbers, leave room for others.
func TestSlowTCP(t *testing.T) {
	r := newRig(t, nil)
	for i := range maxConns { // as many as there is room for, from one client
		d := net.Dialer{Timeout: 30 * time.Second}
		conn, err := d.Dial("tcp", r.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write([]byte{0, 50, 1, 2, 3}) // fails once the server has refused it
		}
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 30 * time.Second}
	conn, err := d.Dial("tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	c := dns.Client{Net: "tcp", Timeout: 30 * time.Second}
	if _, _, err := c.ExchangeWithConn(question("dns-version.cluster.local", dns.TypeTXT), &dns.Conn{Conn: conn}); err != nil {
		t.Errorf("another client is kept out: %v", err)
	}
	if a := r.ask(t, question("dns-version.cluster.local", dns.TypeTXT), "udp"); len(a.Answer) != 1 {
		t.Errorf("got %v", a)
	}
}

// TestNoReader: a client that pipelines and never reads is cut off.
func TestNoReader(t *testing.T) {
	r := newRig(t, nil)
	list := make([]model.Endpoint, 500)
	for i := range list {
		list[i] = endpoint(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), "")
	}
	r.store.Apply([]model.Event{serviceEvent(headlessService(nil)), sliceEvent(flux(), list...)})
	conn, err := net.Dial("tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	b, err := question("flux.jobs.svc.cluster.local", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	msg := append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
	end := time.Now().Add(20 * time.Second)
	for err == nil && time.Now().Before(end) {
		_ = conn.SetWriteDeadline(end)
		_, err = conn.Write(msg)
	}
	if err == nil {
		t.Error("still connected")
	}
	r.serving(t)
	_, _ = io.Copy(io.Discard, conn)
}

func TestTruncation(t *testing.T) {
	r := newRig(t, nil)
	list := make([]model.Endpoint, 300)
	for i := range list {
		list[i] = endpoint(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String(), "")
	}
	r.store.Apply([]model.Event{serviceEvent(headlessService(nil)), sliceEvent(flux(), list...)})
	var m *dns.Msg
	for _, size := range []uint16{0, 1232, 4096, 65535} {
		m = question("flux.jobs.svc.cluster.local", dns.TypeA)
		if size > 0 {
			m.SetEdns0(size, false)
		}
		a := r.ask(t, m, "udp")
		if a.Compress = true; !a.Truncated || a.Len() > min(max(512, int(size)), maxUDPAnswer) {
			t.Errorf("size %d: truncated %t, %d bytes", size, a.Truncated, a.Len())
		}
	}
	if a := r.ask(t, m, "tcp"); a.Truncated || len(a.Answer) != len(list) {
		t.Errorf("over TCP: truncated %t, %d of %d records", a.Truncated, len(a.Answer), len(list))
	}
}
