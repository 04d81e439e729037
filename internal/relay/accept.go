package relay

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// breath is the backoff of a listener when the process has no descriptor for a client.
const breath = 50 * time.Millisecond

// listenTCP opens the socket, or takes over that of another process.
func (l *Listener) listenTCP(f *os.File) (fd int, err error) {
	if f != nil {
		fd, err = l.takeOver(f)
	} else {
		fd, err = bindStream(l.at, l.ready)
	}
	if err != nil {
		return -1, fmt.Errorf("listen at %s: %w", l.at, err)
	}
	// Connections inherit these from their listener. A failure of the first two does no harm.
	_ = unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_NODELAY, 1)
	keepAlive(fd)
	return fd, nil
}

// bindStream returns a socket that listens at an address; ready prepares it before it is bound.
func bindStream(at netip.AddrPort, ready func(fd int) error) (int, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	const most = 1 << 16 // waiting clients; the kernel takes net.core.somaxconn if that is less
	steps := []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		func() error {
			if family == unix.AF_INET {
				return nil
			}
			return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
		},
		func() error { return ready(fd) },
		func() error { return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at))) },
		func() error { return os.NewSyscallError("listen", unix.Listen(fd, most)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// takeOver returns a new descriptor of another process's socket.
func (l *Listener) takeOver(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	if err = raw.Control(func(n uintptr) { fd, failed = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) }); err == nil {
		err = failed
	}
	if err != nil {
		return -1, err
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err == nil && listens == 0 {
		err = fmt.Errorf("the socket from the handover does not listen")
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// listen makes a worker wait for clients of a listener; unlisten ends that. The kernel
// wakes one of the workers that wait.
func (w *worker) listen(l *Listener) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return net.ErrClosed
	}
	w.listeners[int32(l.fd)] = l
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLEXCLUSIVE, Fd: int32(l.fd), Pad: ofListener}
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, l.fd, &ev)
	if err == unix.EEXIST {
		return nil
	}
	return os.NewSyscallError("epoll_ctl", err)
}

func (w *worker) unlisten(l *Listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.listeners, int32(l.fd))
	if !w.gone { // explicitly, because the socket may stay open in another process
		_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, l.fd, nil)
	}
}

// resume makes the workers accept clients; pause stops that, and returns when no worker accepts any.
func (l *Listener) resume() error {
	l.taking.Lock()
	defer l.taking.Unlock()
	if l.closed {
		return nil
	}
	l.shut = false
	var err error
	some := false
	for _, w := range l.t.r.workers {
		if e := w.listen(l); e != nil {
			err = e
		} else {
			some = true
		}
	}
	if some {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("no worker can accept connections")
	}
	return err
}

func (l *Listener) pause() {
	l.taking.Lock()
	defer l.taking.Unlock()
	l.shut = true
	for _, w := range l.t.r.workers {
		w.unlisten(l)
	}
}

func (l *Listener) closeTCP() error {
	l.pause()
	l.taking.Lock()
	defer l.taking.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	return os.NewSyscallError("close", unix.Close(l.fd))
}

// take accepts some of the clients that wait.
func (l *Listener) take(w *worker) {
	l.taking.RLock()
	defer l.taking.RUnlock()
	if l.shut {
		return
	}
	for range acceptsAtOnce {
		// Package unix would also query the protocol of each socket.
		fd, from, err := syscall.Accept4(l.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch err {
		case nil:
			w.welcome(l, fd, peer(from))
		case unix.EAGAIN:
			return
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EINVAL:
			l.rest(w, err)
			return
		default: // an error of that client, which has disconnected (accept(2))
		}
	}
}

// rest stops accepting for breath: the descriptors or the memory that clients need are
// in use.
func (l *Listener) rest(w *worker, err error) {
	w.r.complain(l.t.service(), "cannot accept a connection", err)
	w.unlisten(l)
	time.AfterFunc(breath, func() {
		l.taking.RLock()
		defer l.taking.RUnlock()
		if l.shut {
			return
		}
		if err := w.listen(l); err != nil {
			w.r.p.Log.Debug("a worker cannot register a listening socket", "address", l.at, "error", err)
		}
	})
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	out := &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	if zone := a.Addr().Zone(); zone != "" {
		if i, err := net.InterfaceByName(zone); err == nil {
			out.ZoneId = uint32(i.Index)
		}
	}
	return out
}

func peer(a syscall.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return addrPort(&unix.SockaddrInet4{Addr: a.Addr, Port: a.Port})
	case *syscall.SockaddrInet6:
		return addrPort(&unix.SockaddrInet6{Addr: a.Addr, Port: a.Port})
	}
	return netip.AddrPort{}
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
