package relay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// Listener is one socket of a Target. Its connections outlive it, as those through a
// kernel outlive their rule; UDP clients do not: there is nobody to answer from.
type Listener struct {
	t    *Target
	at   netip.AddrPort
	sock interface {
		syscall.Conn
		Close() error
	}
}

// Listen opens a socket for a Target.
func (r *Relay) Listen(t *Target, at netip.AddrPort, p model.Protocol) (*Listener, error) {
	l := &Listener{t: t, at: at}
	cfg := net.ListenConfig{Control: l.prepare, KeepAliveConfig: keepAlive()}
	cfg.SetMultipathTCP(false) // its sockets do not splice
	switch p {
	case model.TCP:
		ln, err := cfg.Listen(context.Background(), "tcp", at.String())
		if err != nil {
			return nil, err
		}
		l.sock = ln.(*net.TCPListener)
		r.work.Go(func() { r.accept(l, ln.(*net.TCPListener)) })
	case model.UDP:
		pc, err := cfg.ListenPacket(context.Background(), "udp", at.String())
		if err != nil {
			return nil, err
		}
		u := newFlows(l, pc.(*net.UDPConn))
		l.sock = u.conn
		r.work.Go(func() { u.receive(r.ctx) })
	default:
		return nil, fmt.Errorf("%s is not carried", p)
	}
	r.budget.aside(1)
	t.mu.Lock()
	t.listeners[l] = struct{}{}
	t.mu.Unlock()
	l.refilter() // what the Target was told meanwhile
	return l, nil
}

// prepare readies the socket before it is bound: no client that the filter keeps out
// gets in between.
func (l *Listener) prepare(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		// An IPv6 address that only a local route brings here is bound as a foreign one is.
		if l.at.Addr().Is6() {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
		}
		if failed == nil {
			failed = attach(fd, l.program())
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// program is the filter that the Target asks for; nil for none.
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
	raw, err := l.sock.SyscallConn()
	if err == nil {
		var failed error
		if err = raw.Control(func(fd uintptr) { failed = attach(fd, l.program()) }); err == nil {
			err = failed
		}
	}
	if err != nil { // closed, or out of memory: connections are looked at again when they are taken
		l.t.r.p.Log.Debug("cannot filter a socket", "address", l.at, "error", err)
	}
}

// Close closes the socket: new clients are refused.
func (l *Listener) Close() error {
	l.t.mu.Lock()
	_, was := l.t.listeners[l]
	delete(l.t.listeners, l)
	l.t.mu.Unlock()
	if was {
		l.t.r.budget.aside(-1)
	}
	return l.sock.Close()
}
