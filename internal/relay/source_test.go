package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// mute is an endpoint that never answers: a filter drops what asks it.
func mute(t *testing.T) model.Backend {
	t.Helper()
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	fd, err := bindStream(netip.MustParseAddrPort("127.0.0.1:0"), func(fd int) error { return attach(uintptr(fd), drop) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return backend(addrPort(name))
}

// Endpoints that do not answer are each asked in the client's name and in our own, and the
// same number of them as without the client's name.
func TestSilentEndpointsInTheClientsName(t *testing.T) {
	if out, err := exec.Command("ip", "addr", "replace", "198.18.0.5/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	last := named(t, "127.0.0.1")
	f := frontend(mute(t), mute(t), mute(t), last)
	f.Backends[0].Weight = 1<<16 - 1 // with it the search begins, as good as always
	f.Relay.KeepSource = true
	r := newRelay(t, Params{})
	r.limits.dial = 200 * time.Millisecond
	at := open(t, r.Target(f), "127.0.0.1", model.TCP)
	if got, err := ask(t, "198.18.0.5", at); err != nil || got != answered(last) {
		t.Errorf("the fourth endpoint: %q, %v", got, err)
	}
	if n := r.Counts().Retried; n != 6 {
		t.Errorf("%d attempts failed, want 2 at each of 3 endpoints", n)
	}
}

// A client whose answers go astray is asked for once in its own name, and counted; for a minute
// it is then served without, and does not wait again.
func TestAnswersThatGoAstray(t *testing.T) {
	if out, err := exec.Command("ip", "addr", "replace", "198.18.0.6/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	drop, ok := filter([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, true) // so no answer comes to anybody else
	if !ok {
		t.Fatal("no filter")
	}
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (failed error) {
		err := c.Control(func(fd uintptr) { failed = attach(fd, drop) })
		return errors.Join(err, failed)
	}}
	l, err := cfg.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := servedBy(t, l, name)
	f := frontend(b)
	f.Relay.KeepSource = true
	r := newRelay(t, Params{})
	r.limits.dial = time.Second
	at := open(t, r.Target(f), "127.0.0.1", model.TCP)
	for range 2 {
		if got, err := ask(t, "198.18.0.6", at); err != nil || got != answered(b) {
			t.Errorf("%q, %v", got, err)
		}
		if n := r.Counts(); n.SourceLost != 1 || n.Retried != 1 {
			t.Errorf("%d clients lost their address and %d attempts failed, want one of each", n.SourceLost, n.Retried)
		}
	}
}

// An endpoint without a route does not count as a lost client address: it is not reached from any address.
func TestNoWayIsNoLostAddress(t *testing.T) {
	for _, args := range [][]string{{"addr", "replace", "198.18.0.7/32", "dev", "lo"}, {"route", "replace", "prohibit", "198.18.9.0/24"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	nowhere := backend(netip.MustParseAddrPort("198.18.9.1:9"))
	last := named(t, "127.0.0.1")
	f := frontend(nowhere, last)
	f.Backends[0].Weight = 1<<16 - 1 // with it the search begins, as good as always
	f.Relay.KeepSource = true
	r := newRelay(t, Params{})
	if got, err := ask(t, "198.18.0.7", open(t, r.Target(f), "127.0.0.1", model.TCP)); err != nil || got != answered(last) {
		t.Errorf("%q, %v", got, err)
	}
	u := frontend(nowhere)
	u.Relay.KeepSource = true
	at := open(t, r.Target(u), "127.0.0.1", model.UDP)
	c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(198, 18, 0, 7)}}).DialContext(t.Context(), "udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a datagram is all that was sent
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := r.counts.lost.Load(); n != 1 {
			return fmt.Errorf("%d datagrams had no way, want 1", n)
		}
		return nil
	})
	if n := r.Counts(); n.Retried != 1 || n.SourceLost != 0 {
		t.Errorf("%d attempts failed, and %d clients lost their address; want 1 and none", n.Retried, n.SourceLost)
	}
}

// A client's address is kept where the endpoint's answers to it can come back here.
func TestWhoseAddressIsKept(t *testing.T) {
	addr := netip.MustParseAddr
	r := newRelay(t, Params{})
	r.SetWhereabouts(Whereabouts{Node: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}})
	f := frontend()
	f.Relay.KeepSource = true
	tg := r.Target(f)
	plain := r.Target(frontend())
	for _, c := range []struct {
		client, at, endpoint string
		kept                 bool
	}{
		{"198.51.100.7", "10.96.0.1", "10.1.0.1:80", true},
		{"2001:db8::7", "fd00::1", "[fd00:1::1]:80", true},
		{"10.1.0.1", "10.96.0.1", "10.1.0.1:80", false},      // the endpoint itself
		{"198.51.100.7", "10.96.0.1", "[fd00::1]:80", false}, // of another family
		{"10.96.0.1", "10.96.0.1", "10.1.0.1:80", false},     // this host, which asks its own address
		{"127.0.0.1", "127.0.0.1", "10.1.0.1:80", false},
		{"::1", "fd00::1", "[fd00:1::1]:80", false},
		{"169.254.7.7", "10.96.0.1", "10.1.0.1:80", false}, // link-local: not routed
		{"fe80::7", "fd00::1", "[fd00:1::1]:80", false},
		{"192.0.2.1", "10.96.0.1", "10.1.0.1:80", false}, // the node
	} {
		client := addr(c.client)
		if got := tg.source(client, addr(c.at), netip.MustParseAddrPort(c.endpoint)); got.IsValid() != c.kept || c.kept && got != client {
			t.Errorf("%s asks %s, answered by %s: %v, want kept %v", c.client, c.at, c.endpoint, got, c.kept)
		}
		if got := plain.source(client, addr(c.at), netip.MustParseAddrPort(c.endpoint)); got.IsValid() {
			t.Errorf("%s: kept although the Service does not ask for it", c.client)
		}
	}
}
