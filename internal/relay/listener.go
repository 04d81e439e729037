package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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
	flows *flows // of UDP
	gate  gate
}

// Listen opens a socket for a Target.
func (r *Relay) Listen(t *Target, at netip.AddrPort, p model.Protocol) (*Listener, error) {
	return r.ListenAgain(t, at, p, Heritage{})
}

// ListenAgain goes on with a socket that another process had, if there is one.
func (r *Relay) ListenAgain(t *Target, at netip.AddrPort, p model.Protocol, h Heritage) (*Listener, error) {
	l := &Listener{t: t, at: at}
	var serve func()
	switch p {
	case model.TCP:
		ln, err := l.listenTCP(h.Socket)
		if err != nil {
			return nil, err
		}
		l.sock = ln
		l.gate.init(ln.SetDeadline)
		serve = func() { r.accept(l, ln) }
	case model.UDP:
		c, err := l.listenUDP(h.Socket)
		if err != nil {
			return nil, err
		}
		l.sock, l.flows = c, newFlows(l, c)
		l.gate.init(c.SetReadDeadline)
		serve = func() { l.flows.receive(r.ctx) }
	default:
		return nil, fmt.Errorf("%s is not carried", p)
	}
	r.budget.aside(1)
	t.mu.Lock()
	t.listeners[l] = struct{}{}
	t.mu.Unlock()
	l.refilter() // what the Target was told meanwhile, or a socket's last owner was not
	for _, f := range h.Flows {
		l.flows.adopt(f)
	}
	r.work.Go(func() {
		defer l.gate.leave()
		serve()
	})
	return l, nil
}

func (l *Listener) config() *net.ListenConfig {
	cfg := &net.ListenConfig{Control: l.prepare, KeepAliveConfig: keepAlive()}
	cfg.SetMultipathTCP(false) // its sockets do not splice
	return cfg
}

func (l *Listener) listenTCP(f *os.File) (*net.TCPListener, error) {
	var ln net.Listener
	var err error
	if f == nil {
		ln, err = l.config().Listen(context.Background(), "tcp", l.at.String())
	} else {
		ln, err = net.FileListener(f)
	}
	if err != nil {
		return nil, err
	}
	if t, ok := ln.(*net.TCPListener); ok {
		return t, nil
	}
	return nil, errors.Join(fmt.Errorf("the socket for %s is not TCP's", l.at), ln.Close())
}

func (l *Listener) listenUDP(f *os.File) (*net.UDPConn, error) {
	var c net.PacketConn
	var err error
	if f == nil {
		c, err = l.config().ListenPacket(context.Background(), "udp", l.at.String())
	} else {
		c, err = net.FilePacketConn(f)
	}
	if err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UDPConn); ok {
		return u, nil
	}
	return nil, errors.Join(fmt.Errorf("the socket for %s is not UDP's", l.at), c.Close())
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
	err := l.sock.Close()
	l.gate.open()
	return err
}
