package app

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// track puts a TCP connection that nobody has answered into the kernel's table of connections.
func track(t *testing.T, clientPort uint16, to, end string) {
	t.Helper()
	client := net.IPv4(10, 244, 1, 9).To4()
	f := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 3600, ProtoInfo: &netlink.ProtoInfoTCP{State: 3},
		Forward: netlink.IPTuple{SrcIP: client, SrcPort: clientPort, DstIP: net.ParseIP(to).To4(), DstPort: 80, Protocol: unix.IPPROTO_TCP},
		Reverse: netlink.IPTuple{SrcIP: net.ParseIP(end).To4(), SrcPort: 8080, DstIP: client, DstPort: clientPort, Protocol: unix.IPPROTO_TCP}}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, everyFlow{}) })
}

// everyFlow matches all.
type everyFlow struct{}

func (everyFlow) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

// TestExplainFlows counts real entries of the kernel's table by endpoint.
func TestExplainFlows(t *testing.T) {
	p := begin(t, agentArgs(folder(t, webService), "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	track(t, 4001, "10.96.0.10", "10.244.1.5")
	track(t, 4002, "10.96.0.10", "10.244.1.5")
	track(t, 4003, "10.96.0.10", "10.244.1.77")
	track(t, 4004, "10.96.0.99", "10.244.1.5")
	askAll(t, []asks{
		{"explain shop/web --flows", 0, []string{"Flows      3 (3 unanswered) open", "1 (1 unanswered) to 10.244.1.77:8080/TCP, which is not one of the endpoints below", "open flows", "2 (2 unanswered)"}},
		{"explain 10.96.0.10:80 --flows -o json", 0, []string{`"open": 2`, `"unanswered": 2`, `"elsewhere": [`}},
		{"explain shop/web", 0, []string{"In kernel  agrees"}},
	})
	p.terminate()
}

// TestFlowLooksTakeTurns: a second look comes a second after the first one has ended, or
// not at all.
func TestFlowLooksTakeTurns(t *testing.T) {
	var l flowLooks
	if err := l.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.begin(t.Context()); err == nil {
		t.Error("two looks at a time")
	}
	l.end()
	l.last = l.last.Add(time.Hour)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.begin(ended); err == nil {
		t.Error("the next look did not wait")
	}
	l.last = time.Now().Add(-flowsPause)
	if err := l.begin(t.Context()); err != nil {
		t.Error(err)
	}
}
