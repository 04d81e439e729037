package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// Listener is one socket of a Target. Its connections outlive it, as those through a
// kernel outlive their rule. UDP clients do not: without the socket they cannot be answered.
type Listener struct {
	t  *Target
	at netip.AddrPort

	// Of TCP: a socket that is not in Go's poller, because the workers wait for it.
	fd     int
	taking sync.RWMutex // held by workers while they take clients
	shut   bool         // no worker accepts clients
	closed bool

	// Of UDP.
	conn  *net.UDPConn
	flows *flows
	gate  gate
}

// Listen opens a socket for a Target.
func (r *Relay) Listen(t *Target, at netip.AddrPort, p model.Protocol) (*Listener, error) {
	return r.ListenAgain(t, at, p, Heritage{})
}

// ListenAgain takes over the socket of another process, if there is one, and else opens one.
func (r *Relay) ListenAgain(t *Target, at netip.AddrPort, p model.Protocol, h Heritage) (*Listener, error) {
	l := &Listener{t: t, at: at, fd: -1}
	err := r.budget.listen()
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	switch p {
	case model.TCP:
		l.fd, err = l.listenTCP(h.Socket)
	case model.UDP:
		l.conn, err = l.listenUDP(h.Socket)
	default:
		err = fmt.Errorf("protocol %s is not supported", p)
	}
	if err != nil {
		r.budget.unlisten()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return nil, err
	}
	t.mu.Lock()
	t.listeners[l] = struct{}{}
	t.mu.Unlock()
	r.own.Store(l.place(), l)
	l.refilter() // the Target may have been updated concurrently, and a socket's last owner may have missed updates
	if l.conn == nil {
		if err := l.resume(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		return l, nil
	}
	l.flows = newFlows(l, l.conn)
	l.gate.init(l.conn.SetReadDeadline)
	for _, f := range h.Flows {
		l.flows.adopt(f)
	}
	r.work.Go(func() {
		defer l.gate.leave()
		l.flows.receive(r.ctx)
	})
	return l, nil
}

func (l *Listener) listenUDP(f *os.File) (*net.UDPConn, error) {
	var c net.PacketConn
	var err error
	if f == nil {
		cfg := net.ListenConfig{Control: l.prepare}
		c, err = cfg.ListenPacket(context.Background(), "udp", l.at.String())
	} else {
		c, err = net.FilePacketConn(f)
	}
	if err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UDPConn); ok {
		return u, nil
	}
	return nil, errors.Join(fmt.Errorf("the socket for %s is not a UDP socket", l.at), c.Close())
}

// prepare prepares a UDP socket before it is bound.
func (l *Listener) prepare(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = l.ready(int(fd)) })
	return errors.Join(err, failed)
}

// ready prepares a socket before it is bound. The filter is attached here, so that no client
// that it excludes gets in before.
func (l *Listener) ready(fd int) error {
	freeBind(fd, l.at.Addr())
	return attach(uintptr(fd), l.program())
}

// freeBind lets a socket be bound to an address that is not this host's: an IPv6 address that only a local route delivers here, and one of which
// only a port is delivered here. IPv4 needs IP_TRANSPARENT, because the kernel sends nothing from a foreign address without it. If the process
// may not set it, bind returns that the address is not available.
func freeBind(fd int, at netip.Addr) {
	if at.Is6() {
		_ = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
	} else if !at.IsLoopback() {
		_ = unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	}
}

// program returns the filter that the Target requires; nil for none.
func (l *Listener) program() []unix.SockFilter {
	l.t.mu.Lock()
	list, any := admitted(&l.t.f, l.t.r.where.Load(), l.at.Addr())
	l.t.mu.Unlock()
	if any {
		return nil
	}
	p, ok := filter(list, l.at.Addr().Is4())
	if !ok {
		return nil
	}
	return p
}

func (l *Listener) refilter() {
	err := l.control(func(fd int) error { return attach(uintptr(fd), l.program()) })
	if err != nil { // closed, or out of memory: connections are checked again when they are accepted
		l.t.r.p.Log.Debug("cannot attach a filter to a socket", "address", l.at, "error", err)
	}
}

// control calls do with the socket, which stays open until do returns.
func (l *Listener) control(do func(fd int) error) error {
	if l.conn == nil {
		l.taking.RLock()
		defer l.taking.RUnlock()
		if l.closed {
			return net.ErrClosed
		}
		return do(l.fd)
	}
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

// Close closes the socket: new clients are refused.
func (l *Listener) Close() error {
	l.t.mu.Lock()
	_, was := l.t.listeners[l]
	delete(l.t.listeners, l)
	l.t.mu.Unlock()
	if was {
		l.t.r.own.CompareAndDelete(l.place(), l)
		l.t.r.budget.unlisten()
	}
	if l.conn == nil {
		return l.closeTCP()
	}
	err := l.conn.Close()
	l.gate.open()
	return err
}
