package relay

import (
	"container/list"
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
	udpNew = 30 * time.Second // nf_conntrack_udp_timeout: of a flow that is no stream
	// readsAtOnce bounds how many datagrams are read before anything else is handled: a flood
	// must not keep a socket from being closed or handed over.
	readsAtOnce = 256
	udpStream   = 120 * time.Second // nf_conntrack_udp_timeout_stream
)

// flows are the clients of one UDP socket. A client keeps its endpoint for as long as
// that serves, as it does with conntrack.
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
	of     *flows
	client netip.AddrPort
	at     netip.AddrPort
	single atomic.Bool // the kernel does not cut bursts for it

	// Guarded by lru.mu.
	lru      *lru
	place    *list.Element // in lru; nil: it was evicted or has ended
	began    time.Time
	last     time.Time // of the last datagram, either way
	answered bool
	stream   bool
}

func newFlows(l *Listener, conn *net.UDPConn) *flows {
	raw, _ := conn.SyscallConn() // fails for a nil connection only
	return &flows{l: l, r: l.t.r, raw: raw, by: map[netip.AddrPort]*flow{}}
}

// receive reads the clients' datagrams until the socket is closed; then their flows
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

// some carries the datagrams that have arrived. It returns false if there is none.
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
			return true // an ICMP error about an answer that was sent, or the socket is closed
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

// flow returns the flow of a client, and creates it if there is none.
func (u *flows) flow(client netip.AddrPort) *flow {
	u.mu.Lock()
	f := u.by[client]
	u.mu.Unlock()
	now := time.Now()
	if f != nil && u.l.t.serves(f.at) {
		f.touch(now, false)
		return f
	}
	if f != nil {
		f.end()
	}
	v := visit{client: client.Addr(), at: u.l.at.Addr()}
	if !u.l.t.admits(v.client, v.at) {
		return nil
	}
	at, ok := u.l.choose(&v, now)
	if !ok {
		return nil
	}
	svc := u.l.t.service()
	if err := u.room(svc, now); err != nil {
		u.l.t.turnedAway(err)
		return nil
	}
	c, err := u.dial(v.client, v.at, at)
	if err != nil {
		u.r.giveFlow(svc)
		u.undialed(svc, at, now, err)
		return nil
	}
	u.r.counts.accepted.Add(1)
	f = &flow{server: c.(*net.UDPConn), at: at, began: now, last: now}
	u.start(client, f, svc)
	return f
}

// room takes a descriptor and a port for a client. If the Service has used its share, or
// none is left, it evicts the longest idle client of the Service.
func (u *flows) room(svc model.ServiceKey, now time.Time) error {
	err := u.r.takeFlow(svc, 2*u.l.t.wishes().MaxConnections)
	if err == nil || !u.displace(svc, now) {
		return err
	}
	u.r.complain(svc, "evicted the longest idle UDP client to admit a new one", err)
	return nil
}

// displace evicts the Service's longest idle client, if one may be evicted. Its descriptor and
// its port stay taken, for the new client.
func (u *flows) displace(svc model.ServiceKey, now time.Time) bool {
	old := u.r.lrus.displace(svc, now)
	if old == nil {
		return false
	}
	old.end()
	u.r.counts.displaced.Add(1)
	return true
}

// undialed reports that no socket towards an endpoint could be opened for a client. If other
// programs use the ports, it evicts the longest idle client: the next datagram of this client
// then finds a port.
func (u *flows) undialed(svc model.ServiceKey, at netip.AddrPort, now time.Time, err error) {
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EADDRINUSE) {
		u.r.counts.refused.Add(1)
		u.r.complain(svc, "cannot open the socket of a UDP client to "+at.String(), err)
		return
	}
	u.r.counts.overPorts.Add(1)
	u.r.complain(svc, "this network namespace has no free port for a UDP client (net.ipv4.ip_local_port_range)", err)
	if u.displace(svc, now) {
		u.r.giveFlow(svc)
	}
}

// takeFlow takes a descriptor and a port for a UDP client; giveFlow releases them.
func (r *Relay) takeFlow(svc model.ServiceKey, own int) error {
	err := r.budget.take(svc, 1, own)
	if err != nil {
		return err
	}
	if err = r.ports.take(svc, 1, 0); err != nil {
		r.budget.give(svc, 1)
	}
	return err
}

func (r *Relay) giveFlow(svc model.ServiceKey) {
	r.budget.give(svc, 1)
	r.ports.give(svc, 1)
}

// portsOfClients returns how many of the ports that the kernel chooses from UDP clients may use:
// an eighth is left to the node's other programs.
func portsOfClients(all [2]uint16) int {
	n := int(all[1]) - int(all[0]) + 1
	return max(1, n-n/8)
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

// start begins to carry a flow's answers; a descriptor and a port have been taken for it.
func (u *flows) start(client netip.AddrPort, f *flow, svc model.ServiceKey) {
	f.of, f.client = u, client
	f.raw, _ = f.server.SyscallConn() // fails for a nil connection only
	u.r.lrus.enter(svc, f)
	u.mu.Lock()
	u.by[client] = f
	u.mu.Unlock()
	u.r.counts.flows.Add(1)
	u.r.work.Go(func() {
		u.answer(f)
		f.end()
		u.r.counts.flows.Add(-1)
		if u.r.lrus.leave(svc, f) {
			u.r.giveFlow(svc)
		}
	})
}

// answer carries one flow's datagrams back until it is idle, its endpoint refuses, or
// it is closed.
func (u *flows) answer(f *flow) {
	var failed error
	to := sockaddr(f.client)
	back := func(fd uintptr) (any bool) {
		any, failed = u.back(fd, f, to)
		return any || failed != nil
	}
	for {
		_ = f.server.SetReadDeadline(time.Now().Add(f.left()))
		for {
			err := f.raw.Read(back)
			if err == nil && failed == nil {
				f.touch(time.Now(), true)
				continue
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return // the next datagram chooses again
			}
			if f.left() <= 0 && (!u.late(f, back) || failed != nil) {
				return
			}
			break // there were some since that time was set
		}
	}
}

// late reads once more before the flow ends: datagrams that arrived while this process did not run are not lost.
func (u *flows) late(f *flow, back func(fd uintptr) bool) (any bool) {
	if f.raw.Control(func(fd uintptr) { any = back(fd) }) != nil || !any {
		return false
	}
	f.touch(time.Now(), true)
	return true
}

// back carries the datagrams that an endpoint has sent. any is false if there is none. The
// buffer is borrowed for the call: an idle client holds none.
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

// end closes the flow's socket: its goroutine ends, and the client's next datagram starts
// a new flow.
func (f *flow) end() {
	u := f.of
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = f.server.Close()
	if u.by[f.client] == f {
		delete(u.by, f.client)
	}
}
