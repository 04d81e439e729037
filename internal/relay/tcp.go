package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
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
		if err := r.budget.take(svc, 2); err != nil {
			l.t.turnedAway(err)
			reset(c)
			continue
		}
		r.counts.accepted.Add(1)
		r.work.Go(func() {
			defer r.budget.give(svc, 2)
			r.serve(l.t, c)
		})
	}
}

// reset ends a connection at once: the peer reads "connection reset".
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// serve finds an endpoint for a client and carries the connection to its end.
func (r *Relay) serve(t *Target, client *net.TCPConn) {
	c, err := r.connect(t, client)
	if err != nil {
		r.counts.refused.Add(1)
		r.p.Log.Debug("a connection finds no endpoint", "address", client.LocalAddr(), "error", err)
		reset(client)
		return
	}
	r.counts.open.Add(1)
	c.carry()
	r.counts.open.Add(-1)
}

func (r *Relay) connect(t *Target, client *net.TCPConn) (*conn, error) {
	v := visit{client: hostOf(client.RemoteAddr()), at: hostOf(client.LocalAddr())}
	if !t.admits(v.client, v.at) {
		return nil, errKeptOut
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
			return t.newConn(client, server.(*net.TCPConn), at)
		}
		if last = err; r.ctx.Err() != nil {
			break
		}
		r.counts.retried.Add(1)
		v.failed = append(v.failed, at)
	}
	return nil, last
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

// conn is a client's connection and that to its endpoint.
type conn struct {
	t      *Target
	at     netip.AddrPort // the endpoint
	up     *half          // client to endpoint
	down   *half
	mu     sync.Mutex
	broken bool
}

func (t *Target) newConn(client, server *net.TCPConn, at netip.AddrPort) (*conn, error) {
	c := &conn{t: t, at: at}
	var err error
	if c.up, err = newHalf(t.r, server, client); err == nil {
		c.down, err = newHalf(t.r, client, server)
	}
	if err != nil {
		reset(server)
		return nil, err
	}
	c.up.other, c.down.other = c.down, c.up
	t.mu.Lock()
	t.conns[c] = struct{}{}
	gone := t.r.p.EndGone && !t.exists(at) // it went while the connection was made
	t.mu.Unlock()
	if gone {
		c.abort()
	}
	return c, nil
}

// carry moves the bytes both ways until both sides have ended, or either is broken.
func (c *conn) carry() {
	r := c.t.r
	stop := context.AfterFunc(r.ctx, c.abort)
	done := make(chan struct{})
	go func() {
		c.pipe(c.down)
		close(done)
	}()
	c.pipe(c.up)
	<-done
	stop()
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	_, _ = c.up.from.Close(), c.down.from.Close()
}

// pipe moves one direction and passes its end on, so that a half-closed connection
// stays usable the other way. What breaks one side resets the other.
func (c *conn) pipe(h *half) {
	moved, err := h.run(func() bool { return c.isEnded(h.other) })
	c.t.r.counts.bytes.Add(moved)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.r.counts.stalled.Add(1)
		}
		c.abort()
		return
	}
	c.mu.Lock()
	h.ended = true
	c.mu.Unlock()
	_ = h.to.CloseWrite()
	// The other direction waits for its sender, from now on not for ever.
	_ = h.other.from.SetReadDeadline(time.Now().Add(halfLimit))
}

func (c *conn) isEnded(h *half) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return h.ended
}

// abort resets both sides.
func (c *conn) abort() {
	c.mu.Lock()
	broken := c.broken
	c.broken = true
	c.mu.Unlock()
	if !broken {
		reset(c.up.from)
		reset(c.down.from)
	}
}
