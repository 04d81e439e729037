package flowlab

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/nft"
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

// Ask asks so often and wants answers of an endpoint. A datagram may be lost, so it is sent five times at most. It gives the last
// answer: the endpoint, and the address that it has seen as the client's.
func (s Stream) Ask(times int) (end, client string) {
	s.l.Helper()
	buf := make([]byte, 64)
	n, tries, limit := 0, 1, 5*time.Second
	if s.Network == "udp" {
		tries, limit = 5, 500*time.Millisecond
	}
	for range times {
		var err error
		for range tries {
			_ = s.SetDeadline(time.Now().Add(patience.Of(limit)))
			if _, err = s.Write([]byte("who\n")); err == nil {
				n, err = s.Read(buf)
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			s.l.Fatalf("%s %s: %v", s.Network, s.Addr, err)
		}
	}
	end, client, _ = strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	return end, client
}

// AskWith asks once with so many bytes, and tells whether an answer came. One that comes too late would be taken for the next one's.
func (s Stream) AskWith(bytes int) (answered bool) {
	_ = s.SetDeadline(time.Now().Add(patience.Of(300 * time.Millisecond)))
	if _, err := s.Write([]byte(strings.Repeat("x", bytes-1) + "\n")); err != nil {
		return false
	}
	_, err := s.Read(make([]byte, 64))
	return err == nil
}

// Flow is what conntrack holds of the stream; false: nothing.
func (s Stream) Flow() (found conntrack.Flow, ok bool) {
	s.l.Helper()
	own, to := netip.MustParseAddrPort(s.LocalAddr().String()), netip.MustParseAddrPort(s.Addr)
	f := conntrack.Filter{Family: conntrack.IPv4, Protocol: unix.IPPROTO_TCP, OrigDst: to.Addr(), OrigPort: to.Port()}
	if to.Addr().Is6() {
		f.Family = conntrack.IPv6
	}
	if s.Network == "udp" {
		f.Protocol = unix.IPPROTO_UDP
	}
	err := conntrack.ErrInterrupted
	for range 20 {
		err = s.l.flows.Flows(s.l.Context(), f, func(x conntrack.Flow) {
			if x.Orig.Src == own {
				found, ok = x, true
			}
		})
		if !errors.Is(err, conntrack.ErrInterrupted) {
			break
		}
	}
	if err != nil {
		s.l.Fatalf("list the flows of conntrack: %v", err)
	}
	return found, ok
}

// Offloaded reports whether conntrack lists the stream as taken over.
func (s Stream) Offloaded() bool {
	s.l.Helper()
	f, ok := s.Flow()
	return ok && f.Offloaded
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

// Forwarded is how many packets have passed the forward hook.
func (l *Lab) Forwarded() (packets uint64) {
	l.Helper()
	rules, err := l.rules.Rules(l.Context(), nft.TableRef{Family: nft.Inet, Name: "seen"})
	for tries := 0; errors.Is(err, nft.ErrInterrupted) && tries < 100; tries++ { // an agent writes just now
		rules, err = l.rules.Rules(l.Context(), nft.TableRef{Family: nft.Inet, Name: "seen"})
	}
	if err != nil || len(rules) != 1 {
		l.Fatalf("count: %v, %d rules", err, len(rules))
	}
	return rules[0].Counted()
}
