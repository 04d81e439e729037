package handover

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/control"
)

// Another user of the host gets no socket, and the sender does not even pause.
func TestAnotherUserGetsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, to connect as another user")
	}
	g := &giver{texts: make([]string, 3)}
	giving(t, g, limit())
	got := make(chan error, 1)
	asNobody(got, func() error {
		c, err := net.Dial("unixpacket", Name) // the kernel notes the thread's user for the peer
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // of the test
		list, err := wire{c: c.(*net.UnixConn), limit: limit()}.receive()
		if err == nil {
			t.Errorf("another user receives %d items", len(list))
		}
		return nil
	})
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	select {
	case word := <-g.told:
		t.Errorf("the sender is told to %s", word)
	case <-time.After(50 * time.Millisecond): // a late word is noticed by the next run
	}
}

// asNobody runs f on a thread of user 65534 and sends its result.
func asNobody(got chan<- error, f func() error) {
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its user, ends with the goroutine
		const keep = ^uintptr(0)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); e != 0 {
			got <- e
			return
		}
		got <- f()
	}()
}

// Nothing is taken from another user's process, and the error names the handover socket and not the control socket.
func TestAnotherUserHoldsTheSocket(t *testing.T) {
	var l net.Listener
	got := make(chan error, 1)
	asNobody(got, func() (err error) { // the kernel notes the user of the thread that listens
		l, err = net.Listen("unixpacket", Name)
		return err
	})
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // of the test
	_, err := Ask(t.Context(), limit(), all)
	var squatted *control.SquattedError
	if !errors.As(err, &squatted) || squatted.UID != 65534 {
		t.Fatalf("a socket of another user: %v", err)
	}
	if text := err.Error(); !strings.Contains(text, "socket "+Name+":") || strings.Contains(text, "fairlead status") {
		t.Errorf("advice for another socket: %s", text)
	}
}
