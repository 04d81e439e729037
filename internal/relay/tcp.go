package relay

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	dialTimeout = 3 * time.Second // a SYN and its first retry
	dialTries   = 4               // endpoints that are asked before the client is told
)

// Why a connection ends before it began.
var (
	errNone    = errors.New("no endpoint takes it")
	errKeptOut = errors.New("the client is not in the source ranges")
)

// keepAlive finds peers that are gone without a word, within four minutes.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 2 * time.Minute, Interval: 30 * time.Second, Count: 4}
}

// accept takes connections until the listener is closed.
func (r *Relay) accept(l *Listener, ln *net.TCPListener) {
	for {
		c, err := ln.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.gate.wait()
			continue
		}
		if err != nil { // out of descriptors or memory: others have used them
			r.complain(l.t.service(), "cannot accept a connection", err)
			select {
			case <-r.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		svc := l.t.service()
		if err := r.budget.take(svc, 2, 2*l.t.wishes().MaxConnections); err != nil {
			l.t.turnedAway(err)
			reset(c)
			continue
		}
		r.counts.accepted.Add(1)
		r.work.Go(func() { r.serve(l.t, c, svc) })
	}
}

// reset ends a connection at once: the peer reads "connection reset".
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// serve finds an endpoint for a client, and begins to carry the connection; two
// descriptors have been taken for it.
func (r *Relay) serve(t *Target, client *net.TCPConn, svc model.ServiceKey) {
	server, at, err := r.connect(t, client)
	if err != nil {
		r.counts.refused.Add(1)
		r.p.Log.Debug("a connection finds no endpoint", "address", client.LocalAddr(), "error", err)
		reset(client)
		r.budget.give(svc, 2)
		return
	}
	t.carry(client, server, at, svc)
}

func (r *Relay) connect(t *Target, client *net.TCPConn) (*net.TCPConn, netip.AddrPort, error) {
	v := visit{client: hostOf(client.RemoteAddr()), at: hostOf(client.LocalAddr())}
	if !t.admits(v.client, v.at) {
		return nil, netip.AddrPort{}, errKeptOut
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive()}
	d.SetMultipathTCP(false)
	last := errNone
	for range dialTries {
		at, ok := t.pick(&v, time.Now())
		if !ok {
			break
		}
		server, err := d.DialContext(r.ctx, "tcp", at.String())
		if err == nil {
			if err = t.introduce(client, server); err == nil {
				return server.(*net.TCPConn), at, nil
			}
			_ = server.Close()
		}
		if last = err; r.ctx.Err() != nil {
			break
		}
		r.counts.retried.Add(1)
		v.failed = append(v.failed, at)
	}
	return nil, netip.AddrPort{}, last
}

// introduce tells an endpoint who its client is, if the Service asks for that.
func (t *Target) introduce(client, server net.Conn) error {
	if !t.wishes().ProxyProtocol {
		return nil
	}
	from, to := client.RemoteAddr().(*net.TCPAddr), client.LocalAddr().(*net.TCPAddr)
	_, err := server.Write(proxyHeader(from.AddrPort(), to.AddrPort())) // the first bytes always find room
	return err
}

func hostOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
