package nft

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/patience"
)

// TestTrace: for the requested packets, and no others, the kernel reports the rule, of any table, that ended them; and
// the temporary table is deleted afterwards.
func TestTrace(t *testing.T) {
	c := ownNetns(t)
	if out, err := exec.Command("sh", "-c", "ip link set lo up && ip addr add 10.9.0.1/32 dev lo && ip addr add fd00:9::1/128 dev lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Another program traces all packets, too.
	nftTool(t, `table inet they { chain trace { type filter hook output priority -500; meta nftrace set 1; }; }`, "-f", "-")
	nftTool(t, `table inet them { chain watch { type filter hook output priority 5; meta l4proto udp udp dport 9 drop; }; }`, "-f", "-")
	for _, host := range []string{"10.9.0.1", "fd00:9::1"} {
		func() {
			spec := TraceSpec{Table: "fairlead-trace-test", From: netip.MustParseAddr(host), To: netip.AddrPortFrom(netip.MustParseAddr(host), 9), Protocol: unix.IPPROTO_UDP}
			send := sender(t, host)
			defer send()
			ctx, cancel := context.WithTimeout(t.Context(), patience.Of(20*time.Second))
			defer cancel()
			var seen []TraceEvent
			if err := c.Trace(ctx, spec, func(e TraceEvent) bool { seen = append(seen, e); return e.Verdict == Drop() }); err != nil {
				t.Fatal(err)
			}
			if len(seen) == 0 {
				t.Fatal("nothing was told")
			}
			last := seen[len(seen)-1]
			if them := (ChainRef{TableRef{Inet, "them"}, "watch"}); last.Chain != them || last.Rule == 0 || last.Verdict != Drop() {
				t.Errorf("the end is %+v", last)
			}
			if slices.ContainsFunc(seen, func(e TraceEvent) bool { return e.Dst.IsValid() && e.Dst != spec.To }) {
				t.Errorf("other packets are told of: %+v", seen)
			}
			if _, found, err := c.Table(t.Context(), spec.table()); found || err != nil {
				t.Errorf("the table is there: %v, %v", found, err)
			}
		}()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Trace(ctx, TraceSpec{Table: "fairlead-trace-test", From: netip.MustParseAddr("10.9.0.1"), To: netip.MustParseAddrPort("10.9.0.1:9"), Protocol: unix.IPPROTO_UDP}, func(TraceEvent) bool { return true })
	if list, err := c.Tables(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("tables: %+v, %v", list, err)
	}
}

// sender sends to port 9 of a host from itself, and to port 10, until it is stopped.
func sender(t *testing.T, host string) (stop func()) {
	t.Helper()
	socket := func(port string) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(host)}}).DialContext(t.Context(), "udp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	traced, other := socket("9"), socket("10")
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for range 5 {
				_, _ = other.Write([]byte("other"))
			}
			_, _ = traced.Write([]byte("traced")) // a drop at output is EPERM
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() { close(ended); <-done; _ = traced.Close(); _ = other.Close() }
}
