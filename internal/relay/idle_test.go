package relay

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// silent is an endpoint that takes nothing: the kernel completes its connections, and
// no goroutine or buffer of this process belongs to them.
func silent(t testing.TB) model.Backend { return silentWith(t, 4096) }

// silentWith has a queue of that many connections, and one more.
func silentWith(t testing.TB, queue int) model.Backend {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, queue)
	}
	if err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return backend(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(at.(*unix.SockaddrInet4).Port)))
}

// bareClients connects n times, with sockets that Go knows nothing of.
func bareClients(t testing.TB, n int, to netip.AddrPort) (fds []int) {
	t.Helper()
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
			t.Fatal(err)
		}
	}
	return fds
}

// memory is what this process has in use: heap and stacks.
func memory() int64 {
	debug.FreeOSMemory() // twice: a pool keeps its values over one collection
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse + m.MSpanInuse + m.OtherSys)
}

// BenchmarkIdleConnections reports what a connection costs that carries nothing; the
// sockets of the clients and of the endpoint are in the kernel alone.
func BenchmarkIdleConnections(b *testing.B) {
	const most = 3000 // less than an endpoint's queue in the kernel holds
	r := newRelay(b, Params{Descriptors: 4*most + 1000})
	at := open(b, r.Target(frontend(silent(b))), "127.0.0.1", model.TCP)
	for b.Loop() {
		before := memory()
		fds := bareClients(b, most, at)
		eventually(b, func() error {
			if n := r.Counts(); n.Connections != most || n.Moving != 0 {
				return fmt.Errorf("%d connections, %d directions that hold a buffer", n.Connections, n.Moving)
			}
			return nil
		})
		b.ReportMetric(float64(memory()-before)/most, "B/connection")
		b.StopTimer()
		for _, fd := range fds {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(fd)
		}
		b.StartTimer()
	}
}

// An idle connection has no goroutine.
func TestIdleHasNoGoroutine(t *testing.T) {
	const many = 200
	r := newRelay(t, Params{})
	at := open(t, r.Target(frontend(silent(t))), "127.0.0.1", model.TCP)
	before := runtime.NumGoroutine()
	for _, fd := range bareClients(t, many, at) {
		defer unix.Close(fd) //nolint:errcheck // of the test
	}
	eventually(t, func() error {
		if n := r.Counts().Connections; n != many {
			return fmt.Errorf("%d connections, want %d", n, many)
		}
		return nil
	})
	eventually(t, func() error {
		if n := runtime.NumGoroutine() - before; n > 3 {
			return fmt.Errorf("%d more goroutines with %d idle connections", n, many)
		}
		return nil
	})
}

// An idle connection goes on with bytes, an end and a reset of either side, and with the
// end of the relay; one whose other side has ended is waited for.
func TestIdleWakes(t *testing.T) {
	r := newRelay(t, Params{})
	served := make(chan *net.TCPConn, 1)
	b := tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { served <- c })
	tg := r.Target(frontend(b))
	at := open(t, tg, "127.0.0.1", model.TCP)
	idle := func() (client, server *net.TCPConn) {
		client, err := dial(t, "127.0.0.1", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		server = <-served
		t.Cleanup(func() { _ = server.Close() })
		_ = server.SetDeadline(time.Now().Add(limit()))
		idles(t, r)
		return client, server
	}
	for range 20 {
		client, server := idle()
		for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
			pass(t, way[0], way[1])
			idles(t, r)
		}
		_ = client.CloseWrite()
		if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("the client's end arrives as %v", err)
		}
		pass(t, server, client)
		_ = server.Close()
		if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("the server's end arrives as %v", err)
		}
		client, server = idle()
		reset(server)
		if _, err := client.Read(make([]byte, 1)); !turnedBack(err) {
			t.Fatalf("the server's reset arrives as %v", err)
		}
	}
	client, _ := idle()
	for l := range tg.listeners {
		_ = l.Close()
	}
	r.Close()
	if _, err := client.Read(make([]byte, 1)); !turnedBack(err) {
		t.Fatalf("the relay's end arrives as %v", err)
	}
	if n := r.Counts(); n.Connections != 0 || len(r.budget.held) != 0 {
		t.Errorf("left behind: %+v, %v", n, r.budget.held)
	}
}

// idles waits until no direction moves anything.
func idles(t testing.TB, r *Relay) {
	t.Helper()
	eventually(t, func() error {
		if n := r.Counts().Moving; n != 0 {
			return fmt.Errorf("%d directions hold a pipe or a buffer", n)
		}
		return nil
	})
}

// pass sends a byte.
func pass(t *testing.T, from, to *net.TCPConn) {
	t.Helper()
	if _, err := from.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}
