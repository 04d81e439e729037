package link_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// Of a connection that has ended on both sides nothing more comes in, though its socket stays for a minute (TIME_WAIT).
func TestTalksOfConnectionsThatHaveEnded(t *testing.T) {
	netnstest.Enter(t)
	ip(t, "link", "set", "lo", "up")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nobody asks any more
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if list, err := link.Talks(); err != nil || len(list) != 2 {
		t.Errorf("while it is open: %v, %v; want both ends", list, err)
	}
	for _, end := range []net.Conn{c, s} { // the end that goes first waits
		if err := end.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the last packets may be in flight, unreported
		list, err := link.Talks()
		switch {
		case err == nil && len(list) == 0:
			return
		case err != nil || time.Now().After(until):
			t.Fatalf("after its end: %v, %v; want none", list, err)
		}
	}
}

// A TCP connection is reported by both its ends, a UDP socket if it is connected; a listening socket
// has no peer. Those of other namespaces are not reported.
func TestTalks(t *testing.T) {
	netnstest.Enter(t)
	ip(t, "link", "set", "lo", "up")
	var want []link.Talk
	for _, host := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		u, err := net.ListenPacket("udp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = u.Close() })
		for _, at := range []net.Addr{l.Addr(), u.LocalAddr()} {
			c, err := net.Dial(at.Network(), at.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			own, peer := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(at.String())
			if at.Network() == "udp" {
				want = append(want, link.Talk{Own: own, Peer: peer, Protocol: unix.IPPROTO_UDP})
				continue
			}
			want = append(want, link.Talk{Own: own, Peer: peer, Protocol: unix.IPPROTO_TCP}, link.Talk{Own: peer, Peer: own, Protocol: unix.IPPROTO_TCP})
		}
	}
	got, err := link.Talks()
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%v lacks %v", got, w)
		}
	}
}
