package relay

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// parker waits for the senders of all parked directions with one goroutine.
type parker struct {
	file *os.File // an epoll descriptor, itself in the poller of Go's runtime
	raw  syscall.RawConn
	fd   int

	mu sync.Mutex
	by map[int32]*half // by the sender's descriptor
}

// newParker begins to wait. Without a descriptor for it nothing is ever parked.
func newParker() (*parker, error) {
	p := &parker{by: map[int32]*half{}}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return p, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return p, unix.Close(fd)
	}
	p.fd, p.file = fd, os.NewFile(uintptr(fd), "epoll")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return p, err
	}
	go p.run()
	return p, nil
}

// run wakes whose sender has sent something, or is gone, until the parker is closed.
func (p *parker) run() {
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := p.raw.Read(func(fd uintptr) bool {
			var err error
			for n, err = unix.EpollWait(int(fd), events, 0); err == unix.EINTR; {
				n, err = unix.EpollWait(int(fd), events, 0)
			}
			return n > 0
		})
		if err != nil {
			return
		}
		for i := range events[:n] {
			p.mu.Lock()
			h := p.by[events[i].Fd]
			p.mu.Unlock()
			if h != nil { // else its connection has just been broken
				h.c.wake(h)
			}
		}
	}
}

// add parks a direction; its conn.mu is held, here and in drop.
func (p *parker) add(h *half) error {
	if p.raw == nil {
		return unix.EBADF
	}
	var failed error
	err := h.src.Control(func(fd uintptr) {
		h.fd = int32(fd)
		p.mu.Lock()
		defer p.mu.Unlock()
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: h.fd}
		if failed = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(fd), &ev); failed == nil {
			p.by[h.fd] = h
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// drop takes a parked direction out; its connection has not been closed yet.
func (p *parker) drop(h *half) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.by, h.fd)
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, int(h.fd), nil)
}

func (p *parker) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}
