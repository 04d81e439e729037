package fastpath

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// UntestableError reports that no test is possible here. It does not say whether the
// kernel works.
type UntestableError struct{ Err error }

// Error implements error.
func (e *UntestableError) Error() string { return "cannot be tested: " + e.Err.Error() }

// Unwrap implements errors.
func (e *UntestableError) Unwrap() error { return e.Err }

// namespace is an open network namespace. It ends when it is closed and no socket is left in it.
type namespace struct{ file *os.File }

func newNamespace() (n namespace, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = &UntestableError{fmt.Errorf("create a network namespace: %w", err)}
			return
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
	}()
	<-done
	return n, err
}

func (n namespace) close() {
	if n.file != nil {
		_ = n.file.Close() // it was only kept open
	}
}

// do runs do in the namespace, on a thread of its own, and waits for it.
func (n namespace) do(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}
