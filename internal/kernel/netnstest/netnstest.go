package netnstest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a separate network namespace of a test, without a route outside. It
// ends with the test.
type Namespace struct{ fd int }

// Enter creates a Namespace and moves the calling goroutine into it permanently.
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

// New creates a Namespace; the calling goroutine stays in its own.
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

// FD returns the descriptor of the namespace, for opening sockets in it.
func (n *Namespace) FD() int { return n.fd }

// Do runs do in the namespace, on a separate thread, and waits for it.
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

// enter creates a namespace and moves the calling thread into it.
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
