package flowlab

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/patience"
)

// Stream is a connection of the client.
type Stream struct {
	net.Conn
	l             *Lab
	Network, Addr string
}

// Dial begins a connection of the client; it ends with the test.
func (l *Lab) Dial(network, addr string) Stream {
	l.Helper()
	s := Stream{l: l, Network: network, Addr: addr}
	l.In(l.Client, func() (err error) {
		s.Conn, err = net.DialTimeout(network, addr, patience.Of(10*time.Second))
		return err
	})
	l.Cleanup(func() { _ = s.Close() })
	return s
}

// Ask asks so often and wants answers of an endpoint. A datagram may be lost, so it is sent three times at most.
func (s Stream) Ask(times int) {
	s.l.Helper()
	buf := make([]byte, 64)
	for range times {
		var err error
		for tries := map[bool]int{true: 3, false: 1}[s.Network == "udp"]; tries > 0; tries-- {
			_ = s.SetDeadline(time.Now().Add(patience.Of(5 * time.Second)))
			if _, err = s.Write([]byte("who\n")); err == nil {
				_, err = s.Read(buf)
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			s.l.Fatalf("%s %s: %v", s.Network, s.Addr, err)
		}
	}
}

// Offloaded tells whether conntrack lists the stream as taken over.
func (s Stream) Offloaded() bool {
	s.l.Helper()
	family := "ipv4"
	if strings.Contains(s.Addr, "[") {
		family = "ipv6"
	}
	port := netip.MustParseAddrPort(s.LocalAddr().String()).Port()
	out, err := exec.Command("conntrack", "-L", "-f", family, "-p", s.Network, "--orig-port-src", fmt.Sprint(port)).Output()
	if err != nil {
		s.l.Fatalf("conntrack -L: %v", err)
	}
	return strings.Contains(string(out), "[OFFLOAD]")
}

// Fast asks until the stream's packets pass the forward hook no more, in bounded rounds.
func (s Stream) Fast() bool {
	s.l.Helper()
	for range 20 {
		before := s.l.Forwarded()
		s.Ask(20)
		if s.Offloaded() && s.l.Forwarded() == before {
			return true
		}
	}
	return false
}

// Slow asks until the stream's packets pass the forward hook, in bounded rounds.
func (s Stream) Slow() bool {
	s.l.Helper()
	for range 20 {
		before := s.l.Forwarded()
		s.Ask(3)
		if s.l.Forwarded() != before {
			return true
		}
	}
	return false
}

var packets = regexp.MustCompile(`counter packets (\d+)`)

// Forwarded is how many packets have passed the forward hook.
func (l *Lab) Forwarded() string {
	l.Helper()
	out, err := exec.Command("nft", "list", "chain", "inet", "seen", "passed").Output()
	found := packets.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		l.Fatalf("count: %v: %s", err, out)
	}
	return found[1]
}
