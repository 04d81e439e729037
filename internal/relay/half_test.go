package relay

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// The last bytes of a stream wait while the receiver takes only a part of them; its end
// follows behind them.
func TestEndBehindBytesThatWait(t *testing.T) {
	r := newRelay(t, Params{})
	w, err := newWorker(r) // which this test turns by hand
	if err != nil {
		t.Fatal(err)
	}
	defer w.closeFiles()
	pair := func() (a, b int) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
		return fds[0], fds[1]
	}
	sender, from := pair()
	to, receiver := pair()
	if err := unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096); err != nil {
		t.Fatal(err)
	}
	c := &conn{w: w, client: side{fd: from, readable: true, ended: true}, server: side{fd: to, writable: true}}
	c.up.init(c, &c.client, &c.server, &c.down)
	c.down.init(c, &c.server, &c.client, &c.up)
	sent := bytes.Repeat([]byte("fairlead"), (bufferBytes-8)/8) // less than is asked for
	if n, err := unix.Write(sender, sent); n != len(sent) || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
	if err := unix.Shutdown(sender, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if !c.up.step() || c.up.ended || c.up.n == 0 || c.up.n == len(sent) {
		t.Fatalf("of %d bytes %d wait, ended %v: the receiver was to take a part", len(sent), c.up.n, c.up.ended)
	}
	var got []byte
	buf := make([]byte, 64<<10)
	for range 1000 {
		n, err := unix.Read(receiver, buf)
		if n == 0 {
			break
		}
		if n > 0 {
			got = append(got, buf[:n]...)
		} else if err != unix.EAGAIN {
			t.Fatal(err)
		}
		c.server.writable = true
		c.up.step()
	}
	if !bytes.Equal(got, sent) || !c.up.ended {
		t.Errorf("%d of %d bytes arrive, ended %v", len(got), len(sent), c.up.ended)
	}
}
