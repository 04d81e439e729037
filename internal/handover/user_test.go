package handover

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Another user of the host gets no socket, and the sender does not even pause.
func TestAnotherUserGetsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, to connect as another user")
	}
	g := &giver{texts: make([]string, 3)}
	giving(t, g, limit())
	got := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its user, ends with the goroutine
		const keep = ^uintptr(0)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); e != 0 {
			got <- e
			return
		}
		c, err := net.Dial("unixpacket", Name) // the kernel notes the thread's user for the peer
		if err != nil {
			got <- err
			return
		}
		defer c.Close() //nolint:errcheck // of the test
		list, err := wire{c: c.(*net.UnixConn), limit: limit()}.receive()
		if err == nil {
			t.Errorf("another user receives %d items", len(list))
		}
		got <- nil
	}()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	select {
	case word := <-g.told:
		t.Errorf("the sender is told to %s", word)
	case <-time.After(50 * time.Millisecond): // a late word is noticed by the next run
	}
}
