package relay

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// descriptors counts those of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// deaf is an endpoint whose queue is full: it answers no further SYN.
func deaf(t *testing.T) model.Backend {
	t.Helper()
	b := silentWith(t, 0)
	for _, fd := range bareClients(t, 1, b.AddrPort()) {
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	return b
}

// abused is a Service that has clients, and what its endpoint is.
func abused(name string, b model.Backend) model.Frontend {
	f := frontend(b)
	f.Service.Name = name
	return f
}

// Clients that never read, endpoints that never answer and endpoints that let nobody in
// cost a share of the descriptors each; who comes then is turned away and counted, and
// other Services are answered all the time.
func TestAbusedServicesAreBounded(t *testing.T) {
	const bound, attempts = 200, 80
	endless := func(c *net.TCPConn) {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}
	for name, make := range map[string]func(*testing.T) model.Backend{
		"clients never read":      func(t *testing.T) model.Backend { return tcpServer(t, "127.0.0.1", endless) },
		"endpoints never answer":  func(t *testing.T) model.Backend { return silent(t) },
		"endpoints never connect": deaf,
	} {
		t.Run(name, func(t *testing.T) {
			stay := name != "endpoints never connect" // those are given up, and a slow test makes room
			r := newRelay(t, Params{Descriptors: bound})
			good := named(t, "127.0.0.1")
			other := open(t, r.Target(frontend(good)), "127.0.0.1", model.TCP)
			bad := abused("abused", make(t))
			at := open(t, r.Target(bad), "127.0.0.1", model.TCP)
			before := descriptors(t)
			for range attempts {
				for _, fd := range bareClients(t, 1, at) {
					defer unix.Close(fd) //nolint:errcheck // of the test
				}
				if got, err := ask(t, "127.0.0.1", other); err != nil || got != answered(good) {
					t.Fatalf("another Service: %q, %v", got, err)
				}
			}
			eventually(t, func() error {
				if n := r.Counts(); n.OverService+n.Accepted != 2*attempts || stay && n.OverService == 0 || n.OverProcess != 0 {
					return fmt.Errorf("of %d attempts each: %+v", attempts, n)
				}
				return nil
			})
			// A client and an endpoint's end of each connection are the test's own.
			if n := descriptors(t) - before; n > bound+attempts+bound/2 {
				t.Errorf("%d descriptors more", n)
			}
			r.budget.mu.Lock()
			defer r.budget.mu.Unlock()
			if held := r.budget.held[bad.Service]; held > bound/2 {
				t.Errorf("the Service holds %d descriptors of %d", held, bound)
			}
		})
	}
}

// While a storm waits at one Service's socket, each round of a worker takes a few of its
// clients, and all that wait at another Service's: how many storm does not matter to that.
func TestStormLeavesOthersTheirTurn(t *testing.T) {
	const many = 300
	r := newRelay(t, Params{})
	w, err := newWorker(r) // which this test turns by hand
	if err != nil {
		t.Fatal(err)
	}
	defer w.closeFiles()
	b := silent(t)
	at, service := map[string]netip.AddrPort{}, map[string]model.Frontend{}
	for _, name := range []string{"stormed", "other"} {
		service[name] = abused(name, b)
		tg := r.Target(service[name])
		l, err := r.Listen(tg, netip.MustParseAddrPort("127.0.0.1:0"), model.TCP)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // of the test
		l.pause()
		l.shut = false
		if err := w.listen(l); err != nil {
			t.Fatal(err)
		}
		at[name] = bound(t, l)
	}
	for _, fd := range slices.Concat(bareClients(t, many, at["stormed"]), bareClients(t, 2, at["other"])) {
		defer unix.Close(fd) //nolint:errcheck // of the test
	}
	raw, err := w.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	events := make([]unix.EpollEvent, eventsAtOnce)
	taken := func(name string) int {
		r.budget.mu.Lock()
		defer r.budget.mu.Unlock()
		return r.budget.held[service[name].Service] / 2
	}
	for round := 1; taken("stormed") < many; round++ {
		w.round(events[:w.wait(raw, events)])
		if n := taken("stormed"); n > round*acceptsAtOnce {
			t.Fatalf("in %d rounds %d clients of the storm were taken", round, n)
		}
		if n := taken("other"); n != 2 {
			t.Fatalf("in round %d, %d of 2 clients of the other Service are taken", round, n)
		}
	}
	w.end()
	for !w.round(events[:w.wait(raw, events)]) {
	}
}

// A storm of connections that end at once leaves nothing behind.
func TestStormLeavesNothing(t *testing.T) {
	const attempts = 2000
	r := newRelay(t, Params{Descriptors: 300})
	good := named(t, "127.0.0.1")
	other := open(t, r.Target(frontend(good)), "127.0.0.1", model.TCP)
	at := open(t, r.Target(abused("stormed", tcpServer(t, "127.0.0.1", reset))), "127.0.0.1", model.TCP)
	for i := range attempts {
		for _, fd := range bareClients(t, 1, at) {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(fd)
		}
		if i%100 == 0 {
			if got, err := ask(t, "127.0.0.1", other); err != nil || got != answered(good) {
				t.Fatalf("another Service: %q, %v", got, err)
			}
		}
	}
	eventually(t, func() error {
		n := r.Counts()
		r.budget.mu.Lock()
		defer r.budget.mu.Unlock()
		if n.Accepted+n.OverService != attempts+attempts/100 || n.Connections+n.Moving != 0 || len(r.budget.held) != 0 {
			return fmt.Errorf("%+v, held %v", n, r.budget.held)
		}
		return nil
	})
}

// A Service has as many connections as it wants at most, and says nothing of others.
func TestMaxConnections(t *testing.T) {
	r := newRelay(t, Params{})
	f := abused("small", tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
	f.Relay.MaxConnections = 3
	at := open(t, r.Target(f), "127.0.0.1", model.TCP)
	for range 3 {
		hold(t, at)
	}
	if got, err := ask(t, "127.0.0.1", at); !turnedBack(err) {
		t.Fatalf("the fourth: %q, %v", got, err)
	}
	if n := r.Counts(); n.OverService != 1 || n.Connections != 3 {
		t.Errorf("%+v", n)
	}
	good := named(t, "127.0.0.1")
	if got, err := ask(t, "127.0.0.1", open(t, r.Target(frontend(good)), "127.0.0.1", model.TCP)); err != nil || got != answered(good) {
		t.Errorf("another Service: %q, %v", got, err)
	}
}

// Both sides of a connection have keep-alive, which finds a peer that is gone: the
// client's from its listener, the endpoint's when the connection is no longer young. No
// small piece waits for the acknowledgement of the one before it.
func TestKeepAliveOnBothSides(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		r := newRelay(t, Params{})
		tg := r.Target(frontend(tcpServer(t, host, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })))
		c := hold(t, open(t, tg, host, model.TCP))
		ping(t, c)
		ping(t, c)
		list := carried(tg)
		if len(list) != 1 {
			t.Fatalf("%d connections", len(list))
		}
		for _, fd := range []int{list[0].client.fd, list[0].server.fd} { // they are never written again
			for _, o := range [][3]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.SOL_TCP, unix.TCP_KEEPIDLE, 120}, {unix.SOL_TCP, unix.TCP_KEEPINTVL, 30}, {unix.SOL_TCP, unix.TCP_KEEPCNT, 4}, {unix.SOL_TCP, unix.TCP_NODELAY, 1}} {
				eventually(t, func() error {
					got, err := unix.GetsockoptInt(fd, o[0], o[1])
					if err != nil || got != o[2] {
						return fmt.Errorf("option %d is %d, %v; want %d", o[1], got, err, o[2])
					}
					return nil
				})
			}
		}
	}
}
