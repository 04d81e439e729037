package relay

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// impatient makes a relay whose limits are short.
func impatient(t *testing.T, l limits) *Relay {
	t.Helper()
	r := newRelay(t, Params{})
	if l.dial == 0 {
		l.dial = time.Hour
	}
	r.limits = l // before there is any connection
	return r
}

// ends waits until the connections have been given up, and that is counted.
func ends(t *testing.T, r *Relay, stalled int64) {
	t.Helper()
	eventually(t, func() error {
		if n := r.Counts(); n.Stalled != stalled || n.Connections+n.Moving != 0 {
			return fmt.Errorf("%+v, want %d stalled and nothing open", n, stalled)
		}
		return nil
	})
}

// A peer that takes nothing is given up, whichever side it is, with pipes and without,
// and one that takes a little now and then is not.
func TestWhoTakesNothingIsGivenUp(t *testing.T) {
	endless := func(c net.Conn) {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := c.Write(chunk); err != nil {
				_ = c.Close()
				return
			}
		}
	}
	for _, pipes := range []int{8, 0} {
		t.Run(fmt.Sprint(pipes, " pipes"), func(t *testing.T) {
			r := impatient(t, limits{stall: 500 * time.Millisecond, half: time.Hour})
			r.pipes.left = pipes
			c, err := dial(t, "127.0.0.1", open(t, r.Target(frontend(tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { endless(c) }))), "127.0.0.1", model.TCP))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // of the test
			ends(t, r, 1)
			if _, err := io.Copy(io.Discard, c); !turnedBack(err) {
				t.Errorf("the client that read nothing reads %v then", err)
			}
			up, err := dial(t, "127.0.0.1", open(t, r.Target(frontend(silent(t))), "127.0.0.1", model.TCP))
			if err != nil {
				t.Fatal(err)
			}
			go endless(up)
			ends(t, r, 2)
		})
	}
}

// A reader that is slow, and slower than the limit in all, is not given up.
func TestSlowReaderIsServed(t *testing.T) {
	r := impatient(t, limits{stall: 5 * time.Second, half: time.Hour})
	r.pipes.left = 0      // a buffer holds less, and waits as long
	const size = 24 << 20 // more than the kernel's buffers hold
	at := open(t, r.Target(frontend(tcpServer(t, "127.0.0.1", func(c *net.TCPConn) {
		_, _ = c.Write(bytes.Repeat([]byte("fairlead"), size/8))
		_ = c.Close()
	}))), "127.0.0.1", model.TCP)
	c, err := dial(t, "127.0.0.1", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read to its end
	_ = c.SetReadBuffer(64 << 10)
	got, begin := 0, time.Now()
	for chunk := make([]byte, 1<<20); ; {
		n, err := c.Read(chunk)
		for i := range chunk[:n] {
			if chunk[i] != "fairlead"[(got+i)%8] {
				t.Fatalf("byte %d is wrong", got+i)
			}
		}
		if got += n; err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		if time.Since(begin) < 6*time.Second {
			time.Sleep(50 * time.Millisecond) // the reader is slow
		}
	}
	if got != size || r.Counts().Stalled != 0 {
		t.Errorf("%d of %d bytes, %+v", got, size, r.Counts())
	}
}

// A connection that one side has ended is given up when the other one is silent for long,
// and goes on before; one that neither side has ended may be idle for ever.
func TestSilenceAfterTheEndOfOneSide(t *testing.T) {
	r := impatient(t, limits{stall: time.Hour, half: time.Second})
	served := make(chan *net.TCPConn, 2)
	at := open(t, r.Target(frontend(tcpServer(t, "127.0.0.1", func(c *net.TCPConn) { served <- c }))), "127.0.0.1", model.TCP)
	whole, half := holdOpen(t, at), holdOpen(t, at)
	a, b := <-served, <-served
	for _, c := range []*net.TCPConn{a, b} {
		defer c.Close() //nolint:errcheck // of the test
	}
	_ = half.CloseWrite()
	eventually(t, func() error {
		if n := r.Counts(); n.Stalled != 1 || n.Connections != 1 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	if _, err := half.Read(make([]byte, 1)); !turnedBack(err) {
		t.Errorf("who has ended its side reads %v", err)
	}
	if _, err := whole.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		if n := r.Counts().Bytes; n != 1 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
}

// An endpoint that does not answer is passed over when its time is over.
func TestSilentEndpointIsPassedOver(t *testing.T) {
	r := impatient(t, limits{stall: time.Hour, half: time.Hour, dial: 2 * time.Second})
	good := named(t, "127.0.0.1")
	at := open(t, r.Target(frontend(deaf(t), good)), "127.0.0.1", model.TCP)
	for tries := 0; tries < 60 && r.Counts().Retried == 0; tries++ { // which one is asked first is chance
		if got, err := ask(t, "127.0.0.1", at); err != nil || got != answered(good) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n := r.Counts(); n.Retried == 0 || n.Refused != 0 {
		t.Errorf("%+v", n)
	}
}

// Urgent data ends a read before all is read; what is behind it arrives all the same.
func TestUrgentData(t *testing.T) {
	r := newRelay(t, Params{})
	b := tcpServer(t, "127.0.0.1", func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%d %x", len(all), all[len(all)-4:])
		_ = c.Close()
	})
	at := open(t, r.Target(frontend(b)), "127.0.0.1", model.TCP)
	for range 50 {
		c, err := dial(t, "127.0.0.1", at)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(make([]byte, 100))
		var failed error
		_ = raw.Control(func(fd uintptr) { failed = unix.Sendto(int(fd), []byte("abc!"), unix.MSG_OOB, nil) })
		if failed != nil {
			t.Fatal(failed)
		}
		_, _ = c.Write([]byte("rest"))
		_ = c.CloseWrite()
		// The urgent byte itself is lost, as with every reader that does not ask for it.
		if got, err := io.ReadAll(c); err != nil || string(got) != "107 72657374" {
			t.Fatalf("the endpoint reads %q, %v", got, err)
		}
		_ = c.Close()
	}
}

// holdOpen opens a connection, and sends nothing.
func holdOpen(t *testing.T, at netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := dial(t, "127.0.0.1", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
