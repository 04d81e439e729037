package offload

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

// lab is a node (the test's namespace) that forwards between a client and a machine with endpoints.
type lab struct {
	*testing.T
	client, server *netnstest.Namespace
}

// newLab makes it, with a counter of the packets that pass the forward hook.
func newLab(t *testing.T) *lab {
	t.Helper()
	netnstest.Enter(t)
	probe := exec.Command("nft", "add table inet probe; add flowtable inet probe f { hook ingress priority 0; }; delete table inet probe")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("needs a kernel with flowtables: %s", out) // test/vm/tests.txt has it run under one that does
	}
	l := &lab{T: t, client: netnstest.New(t), server: netnstest.New(t)}
	at := func(n *netnstest.Namespace) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.FD()) }
	l.run("ip link add c0 type veth peer name c1 netns "+at(l.client), "ip link add s0 type veth peer name s1 netns "+at(l.server),
		"ip addr add 10.2.0.1/24 dev c0", "ip addr add fd02::1/64 dev c0 nodad", "ip addr add 10.1.0.254/24 dev s0", "ip addr add fd01::fe/64 dev s0 nodad",
		"ip link set c0 up", "ip link set s0 up", "sysctl -qw net.ipv4.ip_forward=1", "sysctl -qw net.ipv6.conf.all.forwarding=1",
		"nft add table inet seen", "nft add chain inet seen passed { type filter hook forward priority 200; }", "nft add rule inet seen passed counter")
	l.in(l.client, func() error {
		l.run("ip link set c1 up", "ip addr add 10.2.0.2/24 dev c1", "ip addr add fd02::2/64 dev c1 nodad",
			"ip route add default via 10.2.0.1", "ip -6 route add default via fd02::1")
		return nil
	})
	l.in(l.server, func() error {
		l.run("ip link set s1 up")
		for _, a := range []string{"10.1.0.1", "10.1.0.2", "fd01::1", "fd01::2"} {
			l.run("ip addr add " + a + map[bool]string{true: "/64", false: "/24"}[strings.Contains(a, ":")] + " dev s1" + map[bool]string{true: " nodad"}[strings.Contains(a, ":")])
			if err := l.listen(net.JoinHostPort(a, "8080")); err != nil {
				return err
			}
		}
		l.run("ip route add default via 10.1.0.254", "ip -6 route add default via fd01::fe")
		return nil
	})
	if l.Failed() {
		l.FailNow()
	}
	return l
}

// run runs commands in the namespace of the calling thread.
func (l *lab) run(lines ...string) {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			l.Errorf("%s: %v: %s", line, err, out)
		}
	}
}

func (l *lab) in(n *netnstest.Namespace, do func() error) {
	l.Helper()
	if err := n.Do(do); err != nil {
		l.Fatal(err)
	}
}

// listen answers each line, and each datagram, with the address.
func (l *lab) listen(addr string) error {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	l.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					if _, err := r.ReadString('\n'); err != nil {
						return
					}
					fmt.Fprintln(c, addr)
				}
			}()
		}
	}()
	go func() {
		buf := make([]byte, 64)
		for {
			_, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte(addr+"\n"), from)
		}
	}()
	return nil
}

// stream is a connection of the client.
type stream struct {
	net.Conn
	l       *lab
	network string
	addr    string
}

func (l *lab) dial(network, addr string) stream {
	l.Helper()
	s := stream{l: l, network: network, addr: addr}
	l.in(l.client, func() (err error) {
		s.Conn, err = net.DialTimeout(network, addr, patience.Of(10*time.Second))
		return err
	})
	l.Cleanup(func() { _ = s.Close() })
	return s
}

// ask asks so often and wants answers of an endpoint. A datagram may be lost, so it is sent three times at most.
func (s stream) ask(times int) {
	s.l.Helper()
	buf := make([]byte, 64)
	for range times {
		var err error
		for tries := map[bool]int{true: 3, false: 1}[s.network == "udp"]; tries > 0; tries-- {
			_ = s.SetDeadline(time.Now().Add(patience.Of(5 * time.Second)))
			if _, err = s.Write([]byte("who\n")); err == nil {
				_, err = s.Read(buf)
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			s.l.Fatalf("%s %s: %v", s.network, s.addr, err)
		}
	}
}

// offloaded tells whether conntrack lists the stream as taken over.
func (s stream) offloaded() bool {
	s.l.Helper()
	family := "ipv4"
	if strings.Contains(s.addr, "[") {
		family = "ipv6"
	}
	port := netip.MustParseAddrPort(s.LocalAddr().String()).Port()
	out, err := exec.Command("conntrack", "-L", "-f", family, "-p", s.network, "--orig-port-src", fmt.Sprint(port)).Output()
	if err != nil {
		s.l.Fatalf("conntrack -L: %v", err)
	}
	return strings.Contains(string(out), "[OFFLOAD]")
}

var packets = regexp.MustCompile(`counter packets (\d+)`)

// forwarded is how many packets have passed the forward hook.
func (l *lab) forwarded() string {
	l.Helper()
	out, err := exec.Command("nft", "list", "chain", "inet", "seen", "passed").Output()
	found := packets.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		l.Fatalf("count: %v: %s", err, out)
	}
	return found[1]
}

// fast asks until the stream's packets pass the forward hook no more, in bounded rounds.
func (s stream) fast() bool {
	s.l.Helper()
	for range 20 {
		before := s.l.forwarded()
		s.ask(20)
		if s.offloaded() && s.l.forwarded() == before {
			return true
		}
	}
	return false
}

// slow asks until the stream's packets pass the forward hook, in bounded rounds.
func (s stream) slow() bool {
	s.l.Helper()
	for range 20 {
		before := s.l.forwarded()
		s.ask(3)
		if s.l.forwarded() != before {
			return true
		}
	}
	return false
}
