package offload

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/test/flowlab"
	"github.com/fairlead/fairlead/test/patience"
)

// TestHappenings: what befalls connections on the fast path, beside each data plane. None is lost by it. What befalls an agent is in
// TestAccelerated of package app.
func TestHappenings(t *testing.T) {
	for name, p := range planes() {
		t.Run(name, func(t *testing.T) {
			flowlab.Enter(t)
			l := newPacketLab(t, p)
			b, _ := l.start(20)
			streams := []flowlab.Stream{l.Dial("tcp", "10.96.0.1:53"), l.Dial("udp", "[fd96::1]:53")}
			l.fast("at first", streams...)
			l.excludedMeanwhile(b, streams)
			l.tableDeleted(b, streams)
			l.ends()
		})
	}
}

func (l *packetLab) fast(when string, streams ...flowlab.Stream) {
	l.Helper()
	l.Log("fast", when)
	for _, s := range streams {
		if !s.Fast() {
			l.Fatalf("%s: packets of %s %s pass the forward hook", when, s.Network, s.Addr)
		}
	}
}

func (l *packetLab) slow(when string, streams ...flowlab.Stream) {
	l.Helper()
	l.Log("slow", when)
	for _, s := range streams {
		if !s.Slow() {
			l.Errorf("%s: %s %s is on the fast path", when, s.Network, s.Addr)
		}
	}
}

// excludedMeanwhile: whose address is excluded leaves the fast path, whole, and comes back.
func (l *packetLab) excludedMeanwhile(b *dataplanetest.Bed, streams []flowlab.Stream) {
	l.Helper()
	exclude := func(list ...string) {
		b.View.Unaccelerated = nil
		for _, p := range list {
			b.View.Unaccelerated = append(b.View.Unaccelerated, netip.MustParsePrefix(p))
		}
		b.Base()
		b.Sync(l)
	}
	for _, who := range []struct{ what, tcp, udp string }{
		{"the client", "10.2.0.0/24", "fd02::2/128"}, {"the endpoint", "10.1.0.1/32", "fd01::/64"}, {"the Service", "10.96.0.1/32", "fd96::1/128"},
	} {
		exclude(who.tcp, who.udp)
		for _, s := range streams {
			s.Ask(30)
			if s.Offloaded() {
				l.Errorf("%s is excluded, and %s %s is on the fast path", who.what, s.Network, s.Addr)
			}
		}
		if c, err := ReadCounts(l.Context(), l.k); err != nil || c.Excluded < 60 {
			l.Errorf("%s: %+v packets are counted as excluded, %v", who.what, c, err)
		}
		exclude()
		l.fast("after "+who.what+" was excluded", streams...)
	}
}

// tableDeleted: another program deletes the table of this package.
func (l *packetLab) tableDeleted(b *dataplanetest.Bed, streams []flowlab.Stream) {
	l.Helper()
	l.Run("nft delete table ip fairlead-offload", "nft delete table ip6 fairlead-offload")
	l.slow("without the tables", streams...)
	b.Load(l)
	b.Sync(l)
	l.fast("with the tables again", streams...)
}

// ends: a connection that ends, or is silent, leaves the fast path.
func (l *packetLab) ends() {
	l.Helper()
	leaves := func(what string, s flowlab.Stream) {
		l.Helper()
		for end := time.Now().Add(patience.Of(10 * time.Second)); s.Offloaded(); {
			if time.Now().After(end) {
				l.Errorf("%s, and %s %s is still on the fast path", what, s.Network, s.Addr)
				return
			}
			time.Sleep(patience.Pause(50 * time.Millisecond)) // between two reads of conntrack, which sends no notification
		}
	}
	for _, addr := range []string{"10.96.0.1:53", "[fd96::1]:53"} {
		fin := l.Dial("tcp", addr)
		l.fast("before FIN", fin)
		if err := fin.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			l.Error(err)
		}
		if _, err := io.Copy(io.Discard, fin); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.Error(err)
		}
		leaves("it has ended", fin)
		rst := l.Dial("tcp", addr)
		l.fast("before RST", rst)
		_ = rst.Conn.(*net.TCPConn).SetLinger(0) // then Close resets
		_ = rst.Close()
		leaves("it was reset", rst)
	}
	l.Run("sysctl -qw net.netfilter.nf_flowtable_tcp_timeout=1 net.netfilter.nf_flowtable_udp_timeout=1")
	idle := []flowlab.Stream{l.Dial("tcp", "10.96.0.1:53"), l.Dial("udp", "10.96.0.1:53"), l.Dial("tcp", "[fd96::1]:53"), l.Dial("udp", "[fd96::1]:53")}
	l.fast("before silence", idle...)
	for _, s := range idle {
		leaves("it is silent", s)
	}
	l.fast("after silence", idle...)
}
