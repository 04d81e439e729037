package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/patience"
)

// TestMain: these tests bind addresses in 127.0.0.0/8 of a namespace of their own.
func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// limit bounds each wait; what is well takes a fraction of it.
func limit() time.Duration { return patience.Of(30 * time.Second) }

func newRelay(t testing.TB, p Params) *Relay {
	t.Helper()
	if p.Descriptors == 0 {
		p.Descriptors = 4096
	}
	r := New(p)
	t.Cleanup(func() {
		done := make(chan struct{})
		go func() { r.Close(); close(done) }()
		select {
		case <-done:
		case <-time.After(limit()):
			t.Error("the relay does not end")
		}
	})
	return r
}

// open listens for a Frontend on a port that the kernel chooses.
func open(t testing.TB, tg *Target, host string, p model.Protocol) netip.AddrPort {
	t.Helper()
	l, err := tg.r.Listen(tg, netip.AddrPortFrom(netip.MustParseAddr(host), 0), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return bound(t, l)
}

// bound is where a listener listens.
func bound(t testing.TB, l *Listener) (at netip.AddrPort) {
	t.Helper()
	if err := l.control(func(fd int) error {
		name, err := unix.Getsockname(fd)
		at = addrPort(name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

// reset ends a connection at once: the peer reads "connection reset".
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// carried returns the connections that are carried now. Their fields are their workers'.
func carried(tg *Target) (out []*conn) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	for _, of := range tg.conns {
		out = slices.AppendSeq(out, maps.Keys(of))
	}
	return out
}

func frontend(backends ...model.Backend) model.Frontend {
	f := model.Frontend{Service: model.ServiceKey{Namespace: "test", Name: "web"}, Kind: model.ClusterIP, Verdict: model.Forward, Backends: backends}
	if len(backends) == 0 {
		f.Verdict = model.Reject
	}
	return f
}

func backend(a netip.AddrPort) model.Backend {
	return model.Backend{Addr: a.Addr(), Port: a.Port(), Weight: 1}
}

// tcpServer runs serve for each connection.
func tcpServer(t testing.TB, host string, serve func(c *net.TCPConn)) model.Backend {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return servedBy(t, ln, serve)
}

// servedBy takes connections until the test ends.
func servedBy(t testing.TB, ln net.Listener, serve func(c *net.TCPConn)) model.Backend {
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
	return backend(ln.Addr().(*net.TCPAddr).AddrPort())
}

// named says its own address, then all that it is sent.
func named(t testing.TB, host string) model.Backend { return tcpServer(t, host, name) }

func name(c *net.TCPConn) {
	all, _ := io.ReadAll(c) // until the client half-closes
	_, _ = fmt.Fprintf(c, "%s %s", c.LocalAddr(), all)
	_ = c.Close()
}

// nobody is an address that refuses: nothing is on this port in this namespace, and the
// kernel assigns it to no socket.
func nobody() model.Backend { return backend(netip.MustParseAddrPort("127.0.0.1:9")) }

// ask sends "hello" from an address and returns the whole answer.
func ask(t testing.TB, from string, to netip.AddrPort) (string, error) {
	t.Helper()
	c, err := dial(t, from, to)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // read to its end
	if _, err := io.WriteString(c, "hello"); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	all, err := io.ReadAll(c)
	return string(all), err
}

func dial(t testing.TB, from string, to netip.AddrPort) (*net.TCPConn, error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	ctx, stop := context.WithTimeout(t.Context(), limit())
	defer stop()
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(limit()))
	return c.(*net.TCPConn), nil
}

func answered(b model.Backend) string { return b.AddrPort().String() + " hello" }

// eventually waits until check finds nothing wrong.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit()); time.Now().Before(end); {
		if err = check(); err == nil {
			return
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
	t.Fatal(err)
}

// turnedBack reports whether a connection was reset, whenever the client noticed.
func turnedBack(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTCONN)
}
