package netlink

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// home is the network namespace of a Conn, held open so that any thread can open sockets in it for as long as the Conn
// lives.
type home struct{ fd int }

func homeOf(s *Socket) (home, error) {
	h := home{-1}
	err := s.control(func(fd int) (err error) { h.fd, err = unix.IoctlRetInt(fd, unix.SIOCGSKNS); return err })
	if err != nil {
		return home{-1}, fmt.Errorf("find the network namespace of a socket: %w", err)
	}
	return h, nil
}

func (h home) close() error { return unix.Close(h.fd) }

// dial opens a Socket in the namespace. Only a thread of another namespace must enter it, which needs CAP_SYS_ADMIN; an agent's
// threads are all in it already.
func (h home) dial(o Options) (*Socket, error) {
	runtime.LockOSThread() // so that the compared namespace is that of the opening thread
	defer runtime.UnlockOSThread()
	var its, own unix.Stat_t
	if err := errors.Join(unix.Fstat(h.fd, &its), unix.Stat("/proc/thread-self/ns/net", &own)); err != nil {
		return nil, fmt.Errorf("compare network namespaces: %w", err)
	}
	if its.Dev == own.Dev && its.Ino == own.Ino {
		return dial(0, o)
	}
	return dial(h.fd, o)
}

// Inside runs f in the network namespace of a descriptor, on a separate thread that ends afterwards; 0 is the calling
// thread's own namespace.
func Inside(netns int, f func() error) error {
	if netns == 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
