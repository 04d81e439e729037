package health

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/internal/model"
)

// neighbour returns this namespace an address that is not loopback, to call from.
func neighbour(t *testing.T, addr string) *net.Dialer {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(addr + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(lo, a); err != nil {
		t.Fatal(err)
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}, Timeout: 5 * time.Second}
}

// flood opens n connections that say nothing, and gives a function that tells how many
// of them the server has ended.
func flood(t *testing.T, d *net.Dialer, to string, n int) (ended func() int) {
	t.Helper()
	var count atomic.Int64
	for range n {
		c, err := d.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			_, _ = c.Read(make([]byte, 1))
			count.Add(1)
		}()
	}
	return func() int { return int(count.Load()) }
}

// TestFlood: a neighbour that opens connections and says nothing gets a bounded number
// of them, and neither another neighbour nor the kubelet's probe over loopback waits
// behind them.
func TestFlood(t *testing.T) {
	const port = "10256"
	s := NewServer(ServerParams{Name: "test", Addr: netip.MustParseAddrPort("0.0.0.0:" + port), Handler: hello(), Log: quiet()})
	start(t, s.Run)
	svc := NewServiceHealth(ServiceHealthParams{Families: []model.Family{model.IPv4}, Healthy: func() bool { return true },
		OnBindError: func(_ model.ServiceKey, _ uint16, err error) { t.Error(err) }, Log: quiet()})
	svc.SetAddrs([]netip.Addr{netip.IPv4Unspecified()})
	svc.Set(map[model.ServiceKey]ServicePort{{Namespace: "shop", Name: "web"}: {Port: 31000, LocalReady: 1}})
	start(t, svc.Run)
	bad, good := neighbour(t, "192.0.2.1"), neighbour(t, "192.0.2.2")
	for _, port := range []string{port, "31000"} {
		eventually(t, "listens on "+port, func() bool { _, _, err := fetch("http://127.0.0.1:" + port + "/"); return err == nil })
		ended := flood(t, bad, "192.0.2.1:"+port, maxConnsEach+40)
		eventually(t, "what is over the bound is closed", func() bool { return ended() >= 40 })
		if _, _, err := fetch("http://127.0.0.1:" + port + "/"); err != nil {
			t.Errorf("port %s: the probe: %v", port, err)
		}
		c, err := good.Dial("tcp", "192.0.2.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
		if body, err := io.ReadAll(c); err != nil || len(body) == 0 {
			t.Errorf("port %s: another neighbour: %q, %v", port, body, err)
		}
		if n := ended(); n != 40 {
			t.Errorf("port %s: %d silent connections of one neighbour were ended, want 40", port, n)
		}
	}
}

// TestBoundsTogether: many neighbours (in IPv6 one machine can be many) are bounded
// together, and what ends makes room.
func TestBoundsTogether(t *testing.T) {
	b := new(bounds)
	l := b.listener(nil).(*boundedListener)
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) }
	for i := range maxConns {
		if !l.take(addr(i)) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if l.take(addr(maxConns)) {
		t.Error("there is no bound")
	}
	if !l.take(netip.MustParseAddr("127.0.0.1")) {
		t.Error("loopback is refused")
	}
	l.give(addr(0))
	if !l.take(addr(maxConns)) {
		t.Error("no room after one has ended")
	}
	// Connections of loopback have a bound of their own, and make room there when they end.
	local := netip.MustParseAddr("127.0.0.1")
	for range 2 * maxConnsLocal {
		l.give(local)
		if !l.take(local) {
			t.Fatal("loopback: no room after one has ended")
		}
	}
	for range maxConnsLocal - 1 {
		if !l.take(local) {
			t.Fatal("loopback: refused below the bound")
		}
	}
	if l.take(local) {
		t.Error("loopback: there is no bound")
	}
	if b.remote != maxConns || b.local != maxConnsLocal {
		t.Errorf("counts %d remote and %d local connections, want %d and %d", b.remote, b.local, maxConns, maxConnsLocal)
	}
}

// TestSlowClientEnds: who does not finish asking is cut off.
func TestSlowClientEnds(t *testing.T) {
	srv := newHTTPServer(hello(), writeLimit, quiet())
	for name, d := range map[string]time.Duration{"header": srv.ReadHeaderTimeout, "read": srv.ReadTimeout, "write": srv.WriteTimeout, "idle": srv.IdleTimeout} {
		if d <= 0 || d > time.Minute {
			t.Errorf("the %s time-out is %s", name, d)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv.ReadHeaderTimeout, srv.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\nX-")
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("a client that stops mid-way is not cut off: %v", err)
	}
}
