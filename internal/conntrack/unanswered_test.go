package conntrack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

// TestEndUnanswered: of all flows go those that are for our addresses, go on untranslated, and that nobody has answered.
func TestEndUnanswered(t *testing.T) {
	table := &conntrack.Fake{}
	for _, text := range []string{
		"goes tcp 10.0.0.1:1001 10.96.0.1:80 10.96.0.1:80",
		"goes udp 10.0.0.1:1001 10.96.0.1:53 10.96.0.1:53",
		"goes tcp 10.0.0.1:1002 10.96.0.1:81 10.96.0.1:81", // of a port that the Service does not have
		"goes tcp [fd00::1]:1001 [fd96::1]:80 [fd96::1]:80",
		"answered udp 10.0.0.1:1002 10.96.0.1:53 10.96.0.1:53",
		"open tcp 10.0.0.1:1004 10.96.0.1:80 10.96.0.1:80", // the replies take another way
		"translated tcp 10.0.0.1:1003 10.96.0.1:80 10.1.0.1:8080",
		"others tcp 10.0.0.1:1001 192.0.2.1:80 192.0.2.1:80",
		"zone tcp 10.0.0.1:1001 10.96.0.1:80 10.96.0.1:80 zone",
	} {
		why, f, _ := strings.Cut(text, " ")
		x := flow(f)
		x.Replied, x.Open = why == "answered", why == "open"
		table.Add(x)
	}
	mine := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")}
	ours := func(a netip.Addr) bool { return slices.Contains(mine, a) }
	n, err := EndUnanswered(t.Context(), table, ours)
	if left := table.All(); n != 4 || err != nil || len(left) != 5 {
		t.Errorf("ended %d, %v; left: %v", n, err, left)
	}
	broken := &conntrack.Counter{Table: table, Fail: func(string) error { return errors.New("no") }}
	if _, err := EndUnanswered(t.Context(), broken, ours); err == nil {
		t.Error("a table that cannot be read is no error")
	}
}

// TestAttemptFromBeforeTheRules: the kernel does not translate the second SYN of a connection that went out untranslated, and does so
// once the flow was ended. What was answered stays.
func TestAttemptFromBeforeTheRules(t *testing.T) {
	table := ownNetns(t)
	echo(t, "10.1.0.1:5353")
	echoTCP(t, "10.1.0.1:8080")
	dnat(t, toVIP, "10.1.0.1:5353")
	answered, waiting := dial(t, "10.96.0.1:53"), dial(t, "10.96.0.2:53")
	answered.wants(t, "translated", "10.1.0.1:5353")
	waiting.wants(t, "not translated yet", "")
	const from = "192.168.1.5:40001"
	if c, err := connect(t, from, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing translates yet, and no answer was expected: %v, %v", c, err)
	}
	dnat(t, toVIP, "10.1.0.1:5353", toOther, "10.1.0.1:5353", "ip daddr 10.96.0.3 tcp dport 80", "10.1.0.1:8080")
	waiting.wants(t, "the flow began before there was a rule", "")
	n, err := EndUnanswered(t.Context(), table, func(a netip.Addr) bool { return a.Is4() && a.As4()[1] == 96 })
	if n != 2 || err != nil {
		t.Errorf("ended %d flows, want 2: %v", n, err)
	}
	answered.wants(t, "still", "10.1.0.1:5353")
	waiting.wants(t, "begun anew", "10.1.0.1:5353")
	c, err := connect(t, from, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var opened []bool
	err = table.Flows(t.Context(), conntrack.Filter{Family: conntrack.IPv4, Protocol: 6}, func(x conntrack.Flow) {
		if x.Orig.Src.String() == from {
			opened = append(opened, x.Open && x.Replied)
		}
	})
	if err != nil || !slices.Equal(opened, []bool{true}) {
		t.Errorf("open connections from %s: %v, %v", from, opened, err)
	}
}

// connect opens a connection to 10.96.0.3:80 from a port.
func connect(t *testing.T, from string, limit time.Duration) (net.Conn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)), Timeout: limit}
	return d.DialContext(t.Context(), "tcp", "10.96.0.3:80")
}
