package intercept

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestReasonsAtTheStart: an input that is only not ready yet is not reported at every start, and if
// it stays so the reason is the right one.
func TestReasonsAtTheStart(t *testing.T) {
	var out bytes.Buffer
	known := false
	i := New(Config{Log: slog.New(slog.NewTextHandler(&out, nil)), Known: func() bool { return known }, VIPs: func() []netip.Addr { return nil }})
	look := func() string {
		out.Reset()
		i.say(i.step(t.Context()))
		return out.String()
	}
	if text := look(); text != "" {
		t.Errorf("told at once: %s", text)
	}
	i.began = time.Now().Add(-beginning)
	if text := look(); !strings.Contains(text, "have not been read yet") {
		t.Errorf("before the Services are read: %q", text)
	}
	known = true
	if text := look(); !strings.Contains(text, "has no address of an IP family") {
		t.Errorf("without the Service: %q", text)
	}
	if text := look(); text != "" {
		t.Errorf("told twice: %s", text)
	}
}

// TestServicesComeDuringAStep: a list that is read while a step runs is not a Service without an address.
func TestServicesComeDuringAStep(t *testing.T) {
	known := false
	i := New(Config{Known: func() bool { return known }, VIPs: func() []netip.Addr { known = true; return nil }})
	if err := i.step(t.Context()); err == nil || !strings.Contains(err.Error(), "have not been read yet") {
		t.Errorf("got %v", err)
	}
}

type closer struct{ closed bool }

func (c *closer) Close() error { c.closed = true; return nil }

// TestUnfitServerReleases: a server that is not fit loses its queries at once, not when the elements time out.
func TestUnfitServerReleases(t *testing.T) {
	vip, server := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddrPort("192.0.2.1:10053")
	unfit := errors.New("no upstream")
	i := New(Config{VIPs: func() []netip.Addr { return []netip.Addr{vip} }, Servers: []netip.AddrPort{server}, Fit: func() error { return unfit }})
	var udp, tcp closer
	i.installed, i.alive[vip] = i.targets(), &alive{&udp, &tcp}
	if err := i.step(t.Context()); !errors.Is(err, unfit) {
		t.Errorf("got %v, want %v", err, unfit)
	}
	if !udp.closed || !tcp.closed || i.alive[vip] != nil {
		t.Errorf("the sockets that hold the address are open: UDP closed %v, TCP closed %v", udp.closed, tcp.closed)
	}
}
