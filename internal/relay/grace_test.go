package relay

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// waits counts the endpoints whose last connections are waited for.
func waits(tg *Target) int {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return len(tg.ending)
}

// Connections to an endpoint that exists no longer go on until the grace is over, the
// Service's before the agent's; one that comes again in time keeps them.
func TestEndpointGrace(t *testing.T) {
	echo := func(c *net.TCPConn) { _, _ = io.Copy(c, c) }
	r := newRelay(t, Params{EndpointGrace: time.Hour})
	old, next := tcpServer(t, "127.0.0.1", echo), tcpServer(t, "127.0.0.1", echo)
	tg := r.Target(frontend(old))
	at := open(t, tg, "127.0.0.1", model.TCP)
	c := hold(t, at)
	idle := frontend(next)
	idle.Others = []model.Other{{Addr: old.AddrPort()}}
	for step, s := range []struct {
		now   model.Frontend
		waits int
	}{{frontend(next), 1}, {frontend(old, next), 0}, {idle, 0}, {frontend(next), 1}} {
		tg.Set(s.now)
		if n := waits(tg); n != s.waits {
			t.Fatalf("step %d: %d endpoints are waited for, want %d", step, n, s.waits)
		}
		ping(t, c)
	}
	tg.over(old.AddrPort(), &ending{}) // of a wait that was cancelled concurrently
	ping(t, c)
	short := frontend(next)
	short.Relay.EndpointGrace = time.Millisecond
	tg.Set(frontend(old, next))
	tg.Set(short)
	if _, err := c.Read(make([]byte, 1)); !turnedBack(err) {
		t.Fatalf("after the grace the client reads %v", err)
	}
	eventually(t, func() error {
		if n := r.Counts().Gone; n != 1 {
			return fmt.Errorf("%d are counted", n)
		}
		return nil
	})
	other := hold(t, at)
	tg.Remove()
	if _, err := other.Read(make([]byte, 1)); !turnedBack(err) {
		t.Fatalf("the Service is gone, and after the grace the client reads %v", err)
	}
	eventually(t, func() error {
		tg.mu.Lock()
		defer tg.mu.Unlock()
		if len(tg.conns)+len(tg.ending) > 0 {
			return fmt.Errorf("%d endpoints have connections, %d are waited for", len(tg.conns), len(tg.ending))
		}
		return nil
	})
}

// Without a grace, or where the Service wants none, they go on.
func TestNoEndpointGrace(t *testing.T) {
	for _, own := range []time.Duration{0, -1} {
		r := newRelay(t, Params{EndpointGrace: -own * time.Nanosecond})
		tg := r.Target(frontend(tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { _, _ = io.Copy(c, c) })))
		c := hold(t, open(t, tg, "127.0.0.1", model.TCP))
		f := frontend(nobody())
		f.Relay.EndpointGrace = own
		tg.Set(f)
		if n := waits(tg); n != 0 {
			t.Errorf("%d endpoints are waited for", n)
		}
		ping(t, c)
	}
}

// A connection that has ended by itself is waited for no longer.
func TestGraceOfNobody(t *testing.T) {
	r := newRelay(t, Params{EndpointGrace: time.Hour})
	tg := r.Target(frontend(tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { _, _ = io.Copy(c, c); _ = c.Close() })))
	c := hold(t, open(t, tg, "127.0.0.1", model.TCP))
	tg.Set(frontend(nobody()))
	if n := waits(tg); n != 1 {
		t.Fatalf("%d endpoints are waited for", n)
	}
	_ = c.Close()
	eventually(t, func() error {
		if n := waits(tg); n != 0 {
			return fmt.Errorf("%d endpoints are waited for", n)
		}
		return nil
	})
	if n := r.Counts().Gone; n != 0 {
		t.Errorf("%d are counted as ended", n)
	}
}
