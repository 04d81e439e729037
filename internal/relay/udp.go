package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	udpNew = 30 * time.Second // nf_conntrack_udp_timeout: of a client that nobody has answered
	// readsAtOnce bounds what is read before anything else is looked at: a flood must not
	// keep a socket from being closed or handed over.
	readsAtOnce = 256
	udpStream   = 120 * time.Second // nf_conntrack_udp_timeout_stream
)

// flows are the clients of one UDP socket. A client keeps its endpoint for as long as
// that serves, as conntrack would have it.
type flows struct {
	l   *Listener
	r   *Relay
	raw syscall.RawConn

	mu sync.Mutex
	by map[netip.AddrPort]*flow
}

// flow is one client's way to its endpoint.
type flow struct {
	server *net.UDPConn
	raw    syscall.RawConn // of server
	at     netip.AddrPort
	single atomic.Bool // the kernel does not cut bursts for it

	// Guarded by flows.mu.
	last     time.Time // of the last datagram, either way
	answered bool
}

func newFlows(l *Listener, conn *net.UDPConn) *flows {
	raw, _ := conn.SyscallConn() // fails for a nil connection only
	return &flows{l: l, r: l.t.r, raw: raw, by: map[netip.AddrPort]*flow{}}
}

// receive takes the clients' datagrams until the socket is closed; then their flows
// end.
func (u *flows) receive(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = u.l.Close() })()
	for {
		err := u.raw.Read(u.some)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			u.l.gate.wait()
		} else if err != nil { // closed
			break
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.by {
		_ = f.server.Close()
	}
}

// some carries the datagrams that have come in; false: there is none.
func (u *flows) some(fd uintptr) bool {
	buf := u.r.grams.Get().(*[]byte)
	defer u.r.grams.Put(buf)
	var to *flow
	b := burst{buf: *buf, send: func(b []byte, size int) {
		u.r.counts.lost.Add(int64(u.r.post(road{to.raw, nil, &to.single}, b, size)))
	}}
	defer func() { b.flush() }()
	last := netip.AddrPort{}
	for i := range readsAtOnce {
		n, sender, err := syscall.Recvfrom(int(fd), b.room(), unix.MSG_DONTWAIT)
		switch {
		case err == unix.EAGAIN:
			return i > 0
		case err == unix.EINTR:
			continue
		case err != nil:
			return true // an ICMP error about an answer of ours, or the socket is closed
		}
		client := peer(sender)
		if client == last && b.n > 0 { // its flow was found for the datagram before
			b.add(n)
			continue
		}
		at := b.n
		b.flush()
		copy(b.buf, b.buf[at:at+n])
		if to = u.flow(client); to == nil {
			u.r.counts.lost.Add(1)
			continue
		}
		last = client
		b.add(n)
	}
	return true
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
	c, err := u.dial(v.client, v.at, at)
	if err != nil {
		u.r.budget.give(svc, 1)
		return nil
	}
	u.r.counts.accepted.Add(1)
	f = &flow{server: c.(*net.UDPConn), at: at, last: now}
	u.start(client, f, svc)
	return f
}

// dial opens a socket towards an endpoint, with the client's address if the Service wants it
// kept.
func (u *flows) dial(client, at netip.Addr, endpoint netip.AddrPort) (net.Conn, error) {
	from := u.l.t.source(client, at, endpoint)
	c, err := (&net.Dialer{Control: datagramsFor(from)}).DialContext(u.r.ctx, "udp", endpoint.String())
	if err != nil && from.IsValid() {
		why := err
		if c, err = new(net.Dialer).DialContext(u.r.ctx, "udp", endpoint.String()); err == nil {
			u.l.t.noSource(why)
		}
	}
	return c, err
}

// start begins to carry a flow's answers; one descriptor has been taken for it.
func (u *flows) start(client netip.AddrPort, f *flow, svc model.ServiceKey) {
	f.raw, _ = f.server.SyscallConn() // fails for a nil connection only
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
	var failed error
	to := sockaddr(client)
	back := func(fd uintptr) (any bool) {
		any, failed = u.back(fd, f, to)
		return any || failed != nil
	}
	for {
		_ = f.server.SetReadDeadline(time.Now().Add(u.left(f)))
		for {
			err := f.raw.Read(back)
			if err == nil && failed == nil {
				u.mu.Lock()
				f.last, f.answered = time.Now(), true
				u.mu.Unlock()
				continue
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return // the next datagram chooses again
			}
			if u.left(f) <= 0 && (!u.late(f, back) || failed != nil) {
				return
			}
			break // there were some since that time was set
		}
	}
}

// late has a last look: what has come while this process did not run is not lost.
func (u *flows) late(f *flow, back func(fd uintptr) bool) (any bool) {
	if f.raw.Control(func(fd uintptr) { any = back(fd) }) != nil || !any {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	f.last, f.answered = time.Now(), true
	return true
}

// back carries the datagrams that an endpoint has sent; false: there is none. The buffer
// is borrowed meanwhile: a client that waits costs none.
func (u *flows) back(fd uintptr, f *flow, client unix.Sockaddr) (any bool, err error) {
	buf := u.r.grams.Get().(*[]byte)
	defer u.r.grams.Put(buf)
	b := burst{buf: *buf, send: func(b []byte, size int) {
		u.r.counts.lost.Add(int64(u.r.post(road{u.raw, client, &f.single}, b, size)))
	}}
	defer func() { b.flush() }()
	for range readsAtOnce {
		n, err := unix.Read(int(fd), b.room())
		switch err {
		case nil:
			any = true
			b.add(n)
		case unix.EINTR:
		case unix.EAGAIN:
			return any, nil
		default:
			return any, err
		}
	}
	return any, nil
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
