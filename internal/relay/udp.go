package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	udpNew      = 30 * time.Second  // nf_conntrack_udp_timeout: of a client that nobody has answered
	udpStream   = 120 * time.Second // nf_conntrack_udp_timeout_stream
	maxDatagram = 64 << 10
)

// flows are the clients of one UDP socket. A client keeps its endpoint for as long as
// that serves, as conntrack would have it.
type flows struct {
	l    *Listener
	r    *Relay
	conn *net.UDPConn

	mu sync.Mutex
	by map[netip.AddrPort]*flow
}

// flow is one client's way to its endpoint.
type flow struct {
	server *net.UDPConn
	at     netip.AddrPort

	// Guarded by flows.mu.
	last     time.Time // of the last datagram, either way
	answered bool
}

func newFlows(l *Listener, conn *net.UDPConn) *flows {
	return &flows{l: l, r: l.t.r, conn: conn, by: map[netip.AddrPort]*flow{}}
}

// receive takes the clients' datagrams until the socket is closed; then their flows
// end.
func (u *flows) receive(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = u.l.Close() })()
	buf := make([]byte, maxDatagram)
	for {
		n, client, err := u.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			u.l.gate.wait()
			continue
		}
		if err != nil {
			continue // an ICMP error about an answer of ours
		}
		if f := u.flow(netip.AddrPortFrom(client.Addr().Unmap(), client.Port())); f == nil {
			u.r.counts.lost.Add(1)
		} else if _, err := f.server.Write(buf[:n]); err != nil {
			u.r.counts.lost.Add(1)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.by {
		_ = f.server.Close()
	}
}

// flow finds the way of a client, or makes a new one.
func (u *flows) flow(client netip.AddrPort) *flow {
	u.mu.Lock()
	f := u.by[client]
	u.mu.Unlock()
	now := time.Now()
	if f != nil && u.l.t.serves(f.at) {
		u.mu.Lock()
		f.last = now
		u.mu.Unlock()
		return f
	}
	if f != nil {
		u.forget(client, f)
	}
	v := visit{client: client.Addr(), at: u.l.at.Addr()}
	if !u.l.t.admits(v.client, v.at) {
		return nil
	}
	at, ok := u.l.t.pick(&v, now)
	if !ok {
		return nil
	}
	svc := u.l.t.service()
	if err := u.r.budget.take(svc, 1, 2*u.l.t.wishes().MaxConnections); err != nil {
		u.l.t.turnedAway(err)
		return nil
	}
	c, err := new(net.Dialer).DialContext(u.r.ctx, "udp", at.String())
	if err != nil {
		u.r.budget.give(svc, 1)
		return nil
	}
	u.r.counts.accepted.Add(1)
	f = &flow{server: c.(*net.UDPConn), at: at, last: now}
	u.start(client, f, svc)
	return f
}

// start begins to carry a flow's answers; one descriptor has been taken for it.
func (u *flows) start(client netip.AddrPort, f *flow, svc model.ServiceKey) {
	u.mu.Lock()
	u.by[client] = f
	u.mu.Unlock()
	u.r.counts.flows.Add(1)
	u.r.work.Go(func() {
		u.answer(client, f)
		u.forget(client, f)
		u.r.counts.flows.Add(-1)
		u.r.budget.give(svc, 1)
	})
}

// answer carries one flow's datagrams back until it is idle, its endpoint refuses, or
// it is closed.
func (u *flows) answer(client netip.AddrPort, f *flow) {
	raw, err := f.server.SyscallConn()
	if err != nil {
		return
	}
	for {
		_ = f.server.SetReadDeadline(time.Now().Add(u.left(f)))
		err := u.one(raw, client)
		switch {
		case err == nil:
			u.mu.Lock()
			f.last, f.answered = time.Now(), true
			u.mu.Unlock()
		case !errors.Is(err, os.ErrDeadlineExceeded) || u.left(f) <= 0:
			return // the next datagram chooses again
		}
	}
}

// one carries one datagram. The buffer is borrowed when there is something to read: a
// client that waits costs none.
func (u *flows) one(raw interface {
	Read(func(uintptr) bool) error
}, client netip.AddrPort) error {
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		buf := u.r.grams.Get().(*[]byte)
		defer u.r.grams.Put(buf)
		n, _, err := unix.Recvfrom(int(fd), *buf, unix.MSG_DONTWAIT)
		switch err {
		case unix.EAGAIN, unix.EINTR:
			return err == unix.EINTR
		case nil:
			_, _ = u.conn.WriteToUDPAddrPort((*buf)[:n], client) // a datagram may get lost
		default:
			failed = err
		}
		return true
	})
	return errors.Join(err, failed)
}

// left is how long the flow may go on without a datagram.
func (u *flows) left(f *flow) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	limit := udpNew
	if f.answered {
		limit = udpStream
	}
	return time.Until(f.last.Add(limit))
}

func (u *flows) forget(client netip.AddrPort, f *flow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = f.server.Close()
	if u.by[client] == f {
		delete(u.by, client)
	}
}
