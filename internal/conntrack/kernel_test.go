package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// started makes a Cleaner over the kernel that is in sync with some Frontends.
func started(t *testing.T, table conntrack.Table, decided ...string) *rig {
	t.Helper()
	r := &rig{Cleaner: New(Params{Table: table, Rest: -1, OnPass: func(p Pass) {
		if p.Err != nil {
			t.Error(p.Err)
		}
	}})}
	r.SetNodePortAddrs([]netip.Addr{netip.MustParseAddr("192.168.1.5"), netip.MustParseAddr("fd02::5")})
	r.update(nil, decided...)
	r.Sweep()
	r.turn(t.Context())
	return r
}

const (
	toVIP      = "ip daddr 10.96.0.1 udp dport 53"
	toOther    = "ip daddr 10.96.0.2 udp dport 53"
	toNodePort = "ip daddr 192.168.1.5 udp dport 30053"
	toV6       = "ip6 daddr fd96::1 udp dport 53"
)

// A client that keeps sending from one port is moved when its endpoint goes, and
// only then; its neighbours are not.
func TestEndpointGoes(t *testing.T) {
	table := ownNetns(t)
	echo(t, "10.1.0.1:5353")
	echo(t, "10.1.0.2:5353")
	echo(t, "[fd01::1]:5353")
	echo(t, "[fd01::2]:5353")
	dnat(t, toVIP, "10.1.0.1:5353", toOther, "10.1.0.1:5353", toNodePort, "10.1.0.1:5353", toV6, "[fd01::1]:5353")
	r := started(t, table, "udp 10.96.0.1:53 10.1.0.1:5353", "udp 10.96.0.2:53 10.1.0.1:5353",
		"udp :30053 10.1.0.1:5353", "udp [fd96::1]:53 [fd01::1]:5353")
	vip, neighbour, nodePort, v6 := dial(t, "10.96.0.1:53"), dial(t, "10.96.0.2:53"), dial(t, "192.168.1.5:30053"), dial(t, "[fd96::1]:53")
	for _, c := range []client{vip, neighbour, nodePort} {
		c.wants(t, "at first", "10.1.0.1:5353")
	}
	v6.wants(t, "at first", "[fd01::1]:5353")

	dnat(t, toVIP, "10.1.0.2:5353", toOther, "10.1.0.2:5353", toNodePort, "10.1.0.2:5353", toV6, "[fd01::2]:5353")
	r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353 ~10.1.0.1:5353")
	r.turn(t.Context())
	vip.wants(t, "while the endpoint still serves", "10.1.0.1:5353")

	r.update(nil, "udp 10.96.0.1:53 10.1.0.2:5353", "udp :30053 10.1.0.2:5353", "udp [fd96::1]:53 [fd01::2]:5353")
	r.turn(t.Context())
	vip.wants(t, "after the endpoint has gone", "10.1.0.2:5353")
	nodePort.wants(t, "after the endpoint has gone", "10.1.0.2:5353")
	v6.wants(t, "after the endpoint has gone", "[fd01::2]:5353")
	neighbour.wants(t, "another Service with the same endpoint", "10.1.0.1:5353")
}

// A client that sends while there is no endpoint is not lost to the Service
// (#48370), nor is one whose endpoint was the last (#139628).
func TestNoEndpoints(t *testing.T) {
	table := ownNetns(t)
	echo(t, "10.1.0.1:5353")
	r := started(t, table, "udp 10.96.0.1:53", "udp 10.96.0.2:53 10.1.0.1:5353")
	dnat(t, toOther, "10.1.0.1:5353")
	early, last := dial(t, "10.96.0.1:53"), dial(t, "10.96.0.2:53")
	early.wants(t, "before there is an endpoint", "")
	last.wants(t, "with an endpoint", "10.1.0.1:5353")
	dnat(t, toVIP, "10.1.0.1:5353")
	early.wants(t, "before the cleaner", "") // the test would show nothing otherwise
	r.update(nil, "udp 10.96.0.1:53 10.1.0.1:5353", "udp 10.96.0.2:53")
	r.turn(t.Context())
	early.wants(t, "with an endpoint", "10.1.0.1:5353")
	last.wants(t, "without an endpoint", "")
}

// A Cleaner that starts anew ends what is stale, and nothing else (#122740).
func TestRestart(t *testing.T) {
	table := ownNetns(t)
	echo(t, "10.1.0.1:5353")
	dnat(t, toVIP, "10.1.0.1:5353", toOther, "10.1.0.2:5353", toNodePort, "10.1.0.1:5353")
	clients := []client{dial(t, "10.96.0.1:53"), dial(t, "10.96.0.2:53"), dial(t, "192.168.1.5:30053"), dial(t, "10.9.9.9:30053")}
	for _, c := range clients {
		c.ask(t, silence)
	}
	started(t, table, "udp 10.96.0.1:53 10.1.0.1:5353", "udp 10.96.0.2:53 10.1.0.1:5353", "udp :30053 10.1.0.1:5353")
	here := map[uint16]bool{}
	if err := table.Flows(t.Context(), conntrack.Filter{Family: conntrack.IPv4, Protocol: uint8(model.UDP)},
		func(x conntrack.Flow) { here[x.Orig.Src.Port()] = true }); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true, true} {
		if got := here[clients[i].port()]; got != want {
			t.Errorf("flow to %s there: %t, want %t", clients[i].c.RemoteAddr(), got, want)
		}
	}
}

// With ResetGone a TCP client is told at once that its endpoint has gone, and
// not before it has gone for good.
func TestResetGone(t *testing.T) {
	table := ownNetns(t)
	for _, a := range []string{"10.1.0.1:8080", "10.1.0.2:8080"} {
		echoTCP(t, a)
	}
	dnat(t, "ip daddr 10.96.0.1 tcp dport 80", "10.1.0.1:8080")
	r := started(t, table)
	r.p.ResetGone = true
	r.update(nil, "tcp 10.96.0.1:80 10.1.0.1:8080")
	r.turn(t.Context())
	c, err := net.Dial("tcp", "10.96.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ping := func() error {
		_ = c.SetDeadline(time.Now().Add(patience.Of(30 * time.Second)))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	dnat(t, "ip daddr 10.96.0.1 tcp dport 80", "10.1.0.2:8080")
	r.update(nil, "tcp 10.96.0.1:80 10.1.0.2:8080 -10.1.0.1:8080")
	r.turn(t.Context())
	if err := ping(); err != nil {
		t.Errorf("while the endpoint ends: %v", err)
	}
	r.update(nil, "tcp 10.96.0.1:80 10.1.0.2:8080")
	r.turn(t.Context())
	if err := ping(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("after the endpoint has gone: %v, want a reset", err)
	}
}
