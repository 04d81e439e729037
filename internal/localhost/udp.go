package localhost

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

const (
	udpIdle     = 2 * time.Minute // nf_conntrack_udp_timeout_stream
	udpFlows    = 1024            // clients of one port at a time: each costs a socket
	maxDatagram = 64 << 10
)

// flows are the clients of one UDP port. A client keeps its endpoint for as long as
// that serves, as it does with conntrack.
type flows struct {
	l    *Listeners
	conn *net.UDPConn
	to   *target

	mu sync.Mutex
	by map[netip.AddrPort]*flow
}

type flow struct {
	server *net.UDPConn
	at     netip.AddrPort
	last   time.Time // of the client's last datagram; guarded by flows.mu
}

func (l *Listeners) listenUDP(ctx context.Context, at netip.AddrPort, to *target) (io.Closer, error) {
	pc, err := new(net.ListenConfig).ListenPacket(ctx, "udp", at.String())
	if err != nil {
		return nil, err
	}
	u := &flows{l: l, conn: pc.(*net.UDPConn), to: to, by: map[netip.AddrPort]*flow{}}
	l.work.Go(func() { u.receive(ctx) })
	return pc, nil
}

// receive reads the clients' datagrams until the listener is closed; then their
// flows end, because there is no socket left to answer from.
func (u *flows) receive(ctx context.Context) {
	buf := make([]byte, maxDatagram)
	for {
		n, client, err := u.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			continue // an ICMP error about an answer that this listener has sent
		}
		if f := u.flow(ctx, client); f != nil {
			_, _ = f.server.Write(buf[:n]) // a datagram may get lost
		} else {
			u.l.p.OnRejected(model.UDP)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.by {
		_ = f.server.Close()
	}
}

// flow returns the flow of a client, and creates it if there is none.
func (u *flows) flow(ctx context.Context, client netip.AddrPort) *flow {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.by[client]; f != nil {
		if u.to.has(f.at) {
			f.last = time.Now()
			return f
		}
		_ = f.server.Close()
		delete(u.by, client)
	}
	if len(u.by) >= udpFlows || !u.to.admits(client.Addr()) {
		return nil
	}
	at, ok := u.to.pick(time.Now(), nil)
	if !ok {
		return nil
	}
	c, err := new(net.Dialer).DialContext(ctx, "udp", at.String())
	if err != nil {
		return nil
	}
	f := &flow{server: c.(*net.UDPConn), at: at, last: time.Now()}
	u.by[client] = f
	u.l.work.Go(func() { u.answer(client, f) })
	return f
}

// answer carries one flow's datagrams back.
func (u *flows) answer(client netip.AddrPort, f *flow) {
	defer u.forget(client, f)
	buf := make([]byte, maxDatagram)
	for {
		_ = f.server.SetReadDeadline(time.Now().Add(udpIdle))
		n, err := f.server.Read(buf)
		switch {
		case err == nil:
			_, _ = u.conn.WriteToUDPAddrPort(buf[:n], client)
		case !errors.Is(err, os.ErrDeadlineExceeded) || u.idle(f):
			return // closed, or the endpoint does not listen: the next datagram chooses again
		}
	}
}

func (u *flows) idle(f *flow) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Since(f.last) >= udpIdle
}

func (u *flows) forget(client netip.AddrPort, f *flow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = f.server.Close()
	if u.by[client] == f {
		delete(u.by, client)
	}
}
