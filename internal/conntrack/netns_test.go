package conntrack

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

// ownNetns moves the test's goroutine, for good, to a network namespace of its
// own, with lo and a cable to nowhere.
func ownNetns(t testing.TB) conntrack.Table {
	t.Helper()
	netnstest.Enter(t)
	for _, c := range []string{"link set lo up", "link add hole type veth peer name bottom", "link set hole up", "link set bottom up",
		"addr add 192.168.1.5/24 dev hole", "addr add fd02::5/64 dev hole nodad", "route add default dev hole", "-6 route add default dev hole",
		"addr add 10.1.0.1/32 dev lo", "addr add 10.1.0.2/32 dev lo", "addr add fd01::1/128 dev lo nodad", "addr add fd01::2/128 dev lo nodad"} {
		tool(t, "", "ip", strings.Fields(c)...)
	}
	table, err := conntrack.Open(conntrack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

func tool(t testing.TB, stdin, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// dnat makes the kernel send each frontend's new flows to a backend, as a data
// plane would. Pairs of "ip daddr 10.96.0.1 udp dport 53", "10.1.0.1:5353".
func dnat(t testing.TB, pairs ...string) {
	t.Helper()
	var b strings.Builder
	for _, fam := range []string{"ip", "ip6"} {
		fmt.Fprintf(&b, "table %s t\ndelete table %s t\ntable %s t {\nchain out {\ntype nat hook output priority -100;\n", fam, fam, fam)
		for i := 0; i < len(pairs); i += 2 {
			if strings.HasPrefix(pairs[i], fam+" ") {
				fmt.Fprintf(&b, "%s dnat to %s\n", pairs[i], pairs[i+1])
			}
		}
		b.WriteString("}\n}\n")
	}
	tool(t, b.String(), "nft", "-f", "-")
}

// echo answers every datagram with its own address, until the test ends.
func echo(t testing.TB, addr string) {
	t.Helper()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	answer(t, c, addr)
}

func answer(t testing.TB, c net.PacketConn, addr string) {
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(append([]byte(addr+" "), buf[:n]...), from)
		}
	}()
}

// client is a UDP client that keeps its port, and so its flow.
type client struct{ c net.Conn }

func dial(t testing.TB, addr string) client {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c}
}

// silence is how long nobody must answer where nobody should: that cannot be waited for.
const silence = 300 * time.Millisecond

// ask reports who answers in time: "" if nobody does.
func (c client) ask(t testing.TB, limit time.Duration) string {
	t.Helper()
	buf := make([]byte, 128)
	_ = c.c.SetReadDeadline(time.Now().Add(limit))
	if _, err := c.c.Write([]byte("who")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatal(err)
	}
	n, err := c.c.Read(buf)
	if err != nil {
		return ""
	}
	who, _, _ := strings.Cut(string(buf[:n]), " ")
	return who
}

func (c client) port() uint16 { return netip.MustParseAddrPort(c.c.LocalAddr().String()).Port() }

// wants asks, and complains.
func (c client) wants(t *testing.T, when, who string) {
	t.Helper()
	limit := patience.Of(30 * time.Second)
	if who == "" {
		limit = silence
	}
	if got := c.ask(t, limit); got != who {
		t.Errorf("%s: %q answers %s, want %q", when, got, c.c.RemoteAddr(), who)
	}
}

// echoTCP sends back what comes, until the test ends.
func echoTCP(t testing.TB, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	answerTCP(t, l)
}

func answerTCP(t testing.TB, l net.Listener) {
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}
