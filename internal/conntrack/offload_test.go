package conntrack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

// The rule of KEP-4963 as acceleration will write it: connections to Services alone, and the cheap test of the threshold before
// the look-up. The other chain counts what still passes the forward hook.
const flowtable = `table inet accelerate {
	flowtable f { hook ingress priority 0; devices = { c0, s0 }; counter; }
	chain forward {
		type filter hook forward priority -110;
		ct status dnat ct packets > 20 ct original ip daddr 10.96.0.1 flow add @f
		ct status dnat ct packets > 20 ct original ip6 daddr fd96::1 flow add @f
	}
	chain count {
		type filter hook forward priority 10;
		counter
	}
}
`

// forwarding makes the test's namespace a node between a client and a machine with two endpoints. The client's namespace is
// given back.
func forwarding(t *testing.T) (conntrack.Table, *netnstest.Namespace) {
	t.Helper()
	netnstest.Enter(t)
	probe := exec.Command("nft", "add table inet probe; add flowtable inet probe f { hook ingress priority 0; }; delete table inet probe")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("needs a kernel with flowtables: %s", out) // test/vm/tests.txt has it run under one that does
	}
	clients, servers := netnstest.New(t), netnstest.New(t)
	into := func(n *netnstest.Namespace) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.FD()) }
	must(t, ip("link add c0 type veth peer name c1", "link add s0 type veth peer name s1",
		"link set c1 netns "+into(clients), "link set s1 netns "+into(servers), "link set c0 up", "link set s0 up",
		"addr add 10.2.0.1/24 dev c0", "addr add fd02::1/64 dev c0 nodad", "addr add 10.1.0.254/24 dev s0", "addr add fd01::fe/64 dev s0 nodad"))
	must(t, clients.Do(func() error {
		return ip("link set lo up", "link set c1 up", "addr add 10.2.0.2/24 dev c1", "addr add fd02::2/64 dev c1 nodad",
			"route add default via 10.2.0.1", "-6 route add default via fd02::1")
	}))
	must(t, servers.Do(func() error {
		return ip("link set lo up", "link set s1 up", "addr add 10.1.0.1/24 dev s1", "addr add 10.1.0.2/24 dev s1",
			"addr add fd01::1/64 dev s1 nodad", "addr add fd01::2/64 dev s1 nodad", "route add default via 10.1.0.254", "-6 route add default via fd01::fe")
	}))
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		must(t, os.WriteFile("/proc/sys/net/"+path, []byte("1"), 0))
	}
	table, err := conntrack.Open(conntrack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	tool(t, flowtable, "nft", "-f", "-")
	must(t, servers.Do(func() error {
		for _, a := range []string{"10.1.0.1:5353", "10.1.0.2:5353", "[fd01::1]:5353", "[fd01::2]:5353"} {
			udp, err := net.ListenPacket("udp", a)
			if err != nil {
				return err
			}
			answer(t, udp, a)
			tcp, err := net.Listen("tcp", a)
			if err != nil {
				return err
			}
			answerTCP(t, tcp)
		}
		return nil
	}))
	return table, clients
}

// ip runs the ip command with each line. It gives an error back, for it runs on goroutines that may not end a test.
func ip(lines ...string) error {
	for _, l := range lines {
		if out, err := exec.Command("ip", strings.Fields(l)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", l, err, out)
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sendTo makes new connections to the Service go to these endpoints.
func sendTo(t *testing.T, end4, end6 string) {
	t.Helper()
	text := "table inet t\ndelete table inet t\ntable inet t {\nchain pre {\ntype nat hook prerouting priority -100;\n"
	for _, proto := range []string{"udp", "tcp"} {
		text += fmt.Sprintf("ip daddr 10.96.0.1 %s dport 53 dnat ip to %s\nip6 daddr fd96::1 %s dport 53 dnat ip6 to %s\n", proto, end4, proto, end6)
	}
	tool(t, text+"}\n}\n", "nft", "-f", "-")
}

// stream is one connection of the client, which is asked and answers.
type stream struct {
	net.Conn
	network, addr string
}

// ask returns the answer. A datagram may be lost, so up to three are sent.
func (s stream) ask() (answer string, err error) {
	tries := 1
	if s.network == "udp" {
		tries = 3
	}
	for ; tries > 0; tries-- {
		_ = s.SetDeadline(time.Now().Add(patience.Of(time.Second)))
		if _, err = s.Write([]byte("who")); err != nil {
			continue
		}
		buf := make([]byte, 64)
		var n int
		if n, err = s.Read(buf); err == nil {
			return string(buf[:n]), nil
		}
	}
	return "", err
}

// asks asks so often, and wants an answer each time.
func (s stream) asks(t *testing.T, times int) {
	t.Helper()
	for range times {
		if _, err := s.ask(); err != nil {
			t.Fatalf("%s %s: %v", s.network, s.addr, err)
		}
	}
}

// offloaded reports whether conntrack lists the stream as taken over by a flowtable.
func (s stream) offloaded(t *testing.T) bool {
	t.Helper()
	family := "ipv4"
	if strings.Contains(s.addr, "[") {
		family = "ipv6"
	}
	port := netip.MustParseAddrPort(s.LocalAddr().String()).Port()
	out, err := exec.Command("conntrack", "-L", "-f", family, "-p", s.network, "--orig-port-src", fmt.Sprint(port)).Output()
	if err != nil {
		t.Fatalf("conntrack -L: %v", err)
	}
	return strings.Contains(string(out), "[OFFLOAD]")
}

var packets = regexp.MustCompile(`counter packets (\d+)`)

func forwarded(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list chain inet accelerate count").Output()
	found := packets.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		t.Fatalf("count chain: %v: %s", err, out)
	}
	return found[1]
}

// An endpoint that goes takes the flows along that a flowtable carries past all rules: the cleaner deletes the entry, and with
// it goes the fast path of both directions. A UDP client is moved, a TCP client is told.
func TestGoneEndpointTakesItsOffloadedFlows(t *testing.T) {
	table, clients := forwarding(t)
	sendTo(t, "10.1.0.1:5353", "[fd01::1]:5353")
	r := started(t, table)
	r.p.ResetGone = true
	r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353", "tcp 10.96.0.1:53 10.1.0.1:5353", "udp [fd96::1]:53 [fd01::1]:5353", "tcp [fd96::1]:53 [fd01::1]:5353")
	r.turn(t.Context())
	open := func(network, addr string) stream {
		s := stream{network: network, addr: addr}
		must(t, clients.Do(func() (err error) {
			s.Conn, err = net.DialTimeout(network, addr, patience.Of(5*time.Second))
			return err
		}))
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	var streams []stream
	for _, addr := range []string{"10.96.0.1:53", "[fd96::1]:53"} {
		for _, network := range []string{"udp", "tcp"} {
			short := open(network, addr)
			short.asks(t, 1)
			if short.offloaded(t) {
				t.Errorf("%s %s: offloaded after a few packets", network, addr)
			}
			streams = append(streams, open(network, addr))
		}
	}
	for _, s := range streams {
		fast := false
		for round := 0; round < 20 && !fast; round++ {
			before := forwarded(t)
			s.asks(t, 20)
			fast = s.offloaded(t) && forwarded(t) == before
		}
		if !fast {
			t.Fatalf("%s %s: its packets still pass the forward hook", s.network, s.addr)
		}
	}

	sendTo(t, "10.1.0.2:5353", "[fd01::2]:5353")
	for _, s := range streams {
		s.asks(t, 1) // the running flow stays where it is, whatever new ones do
	}
	r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353", "tcp 10.96.0.1:53 10.1.0.2:5353", "udp [fd96::1]:53 [fd01::2]:5353", "tcp [fd96::1]:53 [fd01::2]:5353")
	r.turn(t.Context())
	for _, s := range streams {
		answer, err := s.ask()
		switch {
		case s.network == "udp" && !strings.Contains(answer, "1::2]") && !strings.HasPrefix(answer, "10.1.0.2:"):
			t.Errorf("udp %s: %q answers (%v), want the other endpoint", s.addr, answer, err)
		case s.network == "tcp" && !errors.Is(err, unix.ECONNRESET):
			t.Errorf("tcp %s: %q, %v, want a reset", s.addr, answer, err)
		}
	}
}
