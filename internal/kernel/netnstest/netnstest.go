package netnstest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of a test's own, without a route outside. It
// ends with the test.
type Namespace struct{ fd int }

// Enter makes a Namespace and moves the calling goroutine into it for good.
// Programs that the goroutine starts run there too.
func Enter(t testing.TB) *Namespace {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	n, err := enter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(n.fd) })
	return n
}

// New makes a Namespace and leaves the calling goroutine where it is.
func New(t testing.TB) *Namespace {
	t.Helper()
	var n *Namespace
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		n, err = enter()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(n.fd) })
	return n
}

// FD is the open namespace, for sockets that are to be made in it.
func (n *Namespace) FD() int { return n.fd }

// Do runs do in the namespace, on a thread of its own, and waits for it.
func (n *Namespace) Do(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(n.fd, unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// enter moves the calling thread.
func enter() (*Namespace, error) {
	const self = "/proc/thread-self/ns/net"
	before, err := os.Readlink(self)
	if err != nil {
		return nil, err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace (this needs root): %w", err)
	}
	now, err := os.Readlink(self)
	if err != nil || now == before {
		return nil, fmt.Errorf("still in network namespace %s: %v", before, err)
	}
	fd, err := unix.Open(self, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Namespace{fd}, nil
}
