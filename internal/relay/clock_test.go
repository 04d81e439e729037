package relay

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/fairlead/fairlead/internal/model"
)

// set moves the clock on the wall of a time and leaves its monotonic reading: as if the
// clock had been set since then. A Time that has both keeps the wall's seconds above bit 30
// of its first word.
func set(at time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) += uint64(by/time.Second) << 30
	return at
}

// However the clock on the wall is set between two moments, an agent that takes over
// remembers clients for as long as they have left, and no longer than they may have.
func TestClockIsSet(t *testing.T) {
	const timeout, passed = time.Hour, 10 * time.Minute
	f := frontend(nobody())
	f.AffinityTimeout = timeout
	r := newRelay(t, Params{})
	client := netip.MustParseAddr("127.0.0.9")
	for _, jump := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		old, next := r.Target(f), r.Target(f)
		old.affinity.by[client] = stuck{nobody().AddrPort(), set(time.Now().Add(timeout-passed), jump)}
		if wall := old.affinity.by[client].until.Round(0).Sub(time.Now().Add(timeout - passed)).Round(time.Minute); wall != jump {
			t.Fatalf("the test sets the clock by %s, not %s", wall, jump)
		}
		list := old.Remembered()
		next.Recall(list)
		if left := time.Until(next.affinity.by[client].until).Round(time.Minute); left != timeout-passed {
			t.Errorf("set by %s before: %s are left", jump, left)
		}
		// And between the two.
		list[0].Until = list[0].Until.Add(jump)
		next.Recall(list)
		at := next.affinity.by[client].until
		if left := time.Until(at); left < 0-time.Minute || left > timeout {
			t.Errorf("set by %s meanwhile: %s are left", jump, left)
		}
		if !strings.Contains(at.String(), " m=") {
			t.Errorf("%s is on the wall only", at)
		}
	}
}

// After a takeover a UDP client counts as idle for two minutes at most.
func TestClockIsSetForFlows(t *testing.T) {
	for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		at := fromWall(toWall(set(time.Now().Add(-time.Minute), jump)), -udpStream, 0)
		if silent := time.Since(at).Round(time.Second); silent != time.Minute {
			t.Errorf("set by %s before: silent for %s", jump, silent)
		}
		at = fromWall(toWall(time.Now().Add(-time.Minute)).Add(jump), -udpStream, 0)
		if silent := time.Since(at); silent < 0 || silent > udpStream+time.Minute || !strings.Contains(at.String(), " m=") {
			t.Errorf("set by %s meanwhile: silent for %s (%s)", jump, silent, at)
		}
	}
}

// A datagram that has come when its flow's time is over, because this process did not run,
// is carried, and the flow goes on.
func TestLateDatagram(t *testing.T) {
	r := newRelay(t, Params{})
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close() //nolint:errcheck // of the test
	l, err := r.Listen(r.Target(frontend(backend(server.LocalAddr().(*net.UDPAddr).AddrPort()))), netip.MustParseAddrPort("127.0.0.1:0"), model.UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of the test
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(bound(t, l)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // of the test
	if _, err := client.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	_ = server.SetReadDeadline(time.Now().Add(limit()))
	_, flow, err := server.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 20 { // whether its goroutine sees the datagram or the end of the time first is chance
		l.flows.mu.Lock()
		f := slices.Collect(maps.Values(l.flows.by))[0] // the only one
		l.flows.mu.Unlock()
		f.lru.mu.Lock()
		f.last = time.Now().Add(-time.Hour)
		_ = f.server.SetReadDeadline(time.Unix(1, 0))
		_, err := server.WriteToUDPAddrPort([]byte("b"), flow)
		f.lru.mu.Unlock() // the goroutine looks how much time is left from here on
		_ = client.SetReadDeadline(time.Now().Add(limit()))
		if n, e := client.Read(buf); err != nil || e != nil || string(buf[:n]) != "b" {
			t.Fatalf("round %d: %q, %v, %v", round, buf[:n], err, e)
		}
	}
}
