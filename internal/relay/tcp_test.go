package relay

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func TestCarriesBothFamilies(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		r := newRelay(t, Params{})
		b := named(t, host)
		at := open(t, r.Target(frontend(b)), host, model.TCP)
		if got, err := ask(t, host, at); err != nil || got != answered(b) {
			t.Errorf("%s: %q, %v", host, got, err)
		}
	}
}

// A connection that one side has ended stays usable the other way, whichever side it
// was, and both see the end.
func TestHalfClose(t *testing.T) {
	r := newRelay(t, Params{})
	heard := make(chan string, 1)
	b := tcpServer(t, "127.0.0.1", func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "first")
		_ = c.CloseWrite()
		all, err := io.ReadAll(c)
		heard <- fmt.Sprint(string(all), err)
		_ = c.Close()
	})
	at := open(t, r.Target(frontend(b)), "127.0.0.1", model.TCP)
	c, err := dial(t, "127.0.0.1", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read to its end
	if all, err := io.ReadAll(c); err != nil || string(all) != "first" {
		t.Fatalf("the server's half: %q, %v", all, err)
	}
	if _, err := io.WriteString(c, "later"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "later<nil>" {
		t.Errorf("after the server has ended its half it hears %q", got)
	}
	eventually(t, func() error {
		if n := r.Counts().Connections; n != 0 {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
}

// Megabytes come through whole, with pipes and without, although both sides are slow
// now and then.
func TestCarriesWhole(t *testing.T) {
	for _, pipes := range []int{8, 0} {
		t.Run(fmt.Sprint(pipes, " pipes"), func(t *testing.T) {
			r := newRelay(t, Params{})
			r.pipes.left = pipes
			b := tcpServer(t, "127.0.0.1", func(c *net.TCPConn) {
				_, _ = io.Copy(c, c)
				_ = c.CloseWrite()
			})
			at := open(t, r.Target(frontend(b)), "127.0.0.1", model.TCP)
			c, err := dial(t, "127.0.0.1", at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // read to its end
			want := make([]byte, 6<<20)
			rng := rand.NewChaCha8([32]byte{1})
			_, _ = rng.Read(want)
			go func() {
				for rest := want; len(rest) > 0; {
					n, err := c.Write(rest[:min(len(rest), 1+rand.IntN(1<<20))])
					if rest = rest[n:]; err != nil {
						return
					}
				}
				_ = c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d of %d bytes came back, equal %v, %v", len(got), len(want), bytes.Equal(got, want), err)
			}
			eventually(t, func() error {
				if n := r.Counts().Bytes; n != int64(2*len(want)) {
					return fmt.Errorf("%d bytes are counted, want %d", n, 2*len(want))
				}
				return nil
			})
		})
	}
}

// An idle connection holds no pipe.
func TestIdleHoldsNoPipe(t *testing.T) {
	r := newRelay(t, Params{})
	r.pipes.left = 4
	b := tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	at := open(t, r.Target(frontend(b)), "127.0.0.1", model.TCP)
	for range 20 {
		c, err := dial(t, "127.0.0.1", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // of the test
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		r.pipes.mu.Lock()
		defer r.pipes.mu.Unlock()
		if n := len(r.pipes.idle) + r.pipes.left; n != 4 {
			return fmt.Errorf("%d of 4 pipes are free", n)
		}
		return nil
	})
}

// An endpoint that refuses is passed over, and that is counted; without any other the
// client is refused.
func TestAnotherEndpointIsAsked(t *testing.T) {
	r := newRelay(t, Params{})
	good, bad := named(t, "127.0.0.1"), nobody()
	tg := r.Target(frontend(bad, good))
	at := open(t, tg, "127.0.0.1", model.TCP)
	for range 30 {
		if got, err := ask(t, "127.0.0.1", at); err != nil || got != answered(good) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if r.Counts().Retried == 0 {
		t.Error("in 30 connections the endpoint that refuses was never asked")
	}
	tg.Set(frontend(bad))
	if got, err := ask(t, "127.0.0.1", at); !turnedBack(err) {
		t.Errorf("with no endpoint that answers: %q, %v", got, err)
	}
	if r.Counts().Refused == 0 {
		t.Error("that is not counted")
	}
}

// A reset of the endpoint is a reset for the client, not an end in good order.
func TestResetIsPassedOn(t *testing.T) {
	r := newRelay(t, Params{})
	b := tcpServer(t, "127.0.0.1", func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 5))
		reset(c)
	})
	at := open(t, r.Target(frontend(b)), "127.0.0.1", model.TCP)
	if got, err := ask(t, "127.0.0.1", at); !turnedBack(err) {
		t.Errorf("%q, %v", got, err)
	}
}

// A reset behind bytes is no end in good order either, from whichever side: the other one
// reads the bytes, then a reset, and nothing of the connection is left.
func TestResetBehindBytes(t *testing.T) {
	r := newRelay(t, Params{})
	served := make(chan *net.TCPConn)
	at := open(t, r.Target(frontend(tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { served <- c }))), "127.0.0.1", model.TCP)
	for i := range 60 {
		client, err := dial(t, "127.0.0.1", at)
		if err != nil {
			t.Fatal(err)
		}
		from, to := client, <-served
		if i%2 == 0 {
			from, to = to, from
		}
		_ = to.SetDeadline(time.Now().Add(limit()))
		if _, err := from.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		reset(from)
		// The kernel may drop what a reset overtakes; an end in good order it never makes.
		if got, err := io.ReadAll(to); !turnedBack(err) {
			t.Fatalf("connection %d: the other side reads %q, then %v", i, got, err)
		}
		_ = to.Close()
	}
	eventually(t, func() error {
		if n := r.Counts(); n.Connections+n.Moving != 0 {
			return fmt.Errorf("left behind: %+v", n)
		}
		return nil
	})
}

// hold opens a connection that goes on.
func hold(t *testing.T, at netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := dial(t, at.Addr().String(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ping(t, c)
	return c
}

func ping(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// An endpoint that goes gets no new connection; those that run go on, unless it exists
// no longer and they are to be ended then.
func TestDrain(t *testing.T) {
	for _, end := range []bool{false, true} {
		r := newRelay(t, Params{EndGone: end})
		echo := func(c *net.TCPConn) { _, _ = io.Copy(c, c) }
		old, next := tcpServer(t, "127.0.0.1", echo), named(t, "127.0.0.1")
		tg := r.Target(frontend(old))
		at := open(t, tg, "127.0.0.1", model.TCP)
		c := hold(t, at)
		leaving := frontend(next)
		leaving.Others = []model.Other{{Addr: old.AddrPort(), Serving: true}}
		tg.Set(leaving)
		for range 20 {
			if got, err := ask(t, "127.0.0.1", at); err != nil || got != answered(next) {
				t.Fatalf("%q, %v", got, err)
			}
		}
		ping(t, c) // it is still serving
		tg.Set(frontend(next))
		if !end {
			ping(t, c)
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(limit()))
		if _, err := c.Read(make([]byte, 1)); !turnedBack(err) {
			t.Errorf("the endpoint exists no longer, and the client reads %v", err)
		}
	}
}
