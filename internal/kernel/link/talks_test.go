package link_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// A TCP connection is told of from both its ends, a UDP socket if it has a peer; who listens
// has none. Those of other namespaces are not told of.
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
