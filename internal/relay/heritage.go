package relay

import (
	"context"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Heritage is a socket that another process has owned, with the UDP clients that it remembered.
type Heritage struct {
	Socket *os.File // nil: a new one is opened. The caller closes it.
	Flows  []Flow
}

// Flow is a UDP client and its endpoint, in the form in which a successor takes it over.
type Flow struct {
	Client, At netip.AddrPort
	Last       time.Time // of the last datagram
	Answered   bool
	Began      time.Time
	Stream     bool
	Socket     *os.File `json:"-"` // towards the endpoint; the caller closes it
}

// Client is a client that session affinity remembers.
type Client struct {
	Addr  netip.Addr
	At    netip.AddrPort
	Until time.Time
}

// Pause stops accepting clients. It returns when none is being accepted, and leaves the socket
// open: clients wait. Neither Close nor another Pause may run concurrently.
func (l *Listener) Pause() {
	if l.conn == nil {
		l.pause()
		return
	}
	l.gate.shut()
}

// Resume accepts clients again after Pause.
func (l *Listener) Resume() {
	l.refilter() // another process may have set its own
	if l.conn == nil {
		if err := l.resume(); err != nil {
			l.t.r.p.Log.Error("cannot resume a listener: new clients are not accepted", "address", l.at, "error", err)
		}
		return
	}
	l.gate.open()
}

// Socket returns a second descriptor of the socket.
func (l *Listener) Socket() (f *os.File, err error) {
	if l.conn != nil {
		return l.conn.File()
	}
	err = l.control(func(fd int) error {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			f = os.NewFile(uintptr(n), l.at.String())
		}
		return err
	})
	return f, err
}

// Flows returns the UDP clients, with second descriptors of their sockets. Clients whose
// socket cannot be duplicated are omitted: their next datagram starts a new flow.
func (l *Listener) Flows() (out []Flow) {
	if l.flows == nil {
		return nil
	}
	l.flows.mu.Lock()
	defer l.flows.mu.Unlock()
	for client, f := range l.flows.by {
		if s, err := f.server.File(); err == nil {
			f.lru.mu.Lock()
			out = append(out, Flow{Client: client, At: f.at, Last: toWall(f.last), Answered: f.answered, Began: toWall(f.began), Stream: f.stream, Socket: s})
			f.lru.mu.Unlock()
		}
	}
	return out
}

// adopt takes over another process's client. If it cannot, the client's next datagram starts a new flow.
func (u *flows) adopt(old Flow) {
	c, err := net.FileConn(old.Socket)
	if err != nil {
		return
	}
	server, ok := c.(*net.UDPConn)
	svc := u.l.t.service()
	if !ok || u.r.takeFlow(svc, 0) != nil {
		_ = c.Close()
		return
	}
	u.start(old.Client, &flow{server: server, at: old.At, last: fromWall(old.Last, -udpStream, 0), answered: old.Answered,
		began: fromWall(old.Began, -udpStream, 0), stream: old.Stream}, svc)
}

// Two processes can exchange a time only as wall clock time. Within a process it counts by
// the monotonic clock, which no program sets: toWall returns a time by the wall clock as it is
// set now, and fromWall converts it back, bounded by earliest and latest.
func toWall(at time.Time) time.Time { return time.Now().Add(time.Until(at)).Round(0) }

func fromWall(at time.Time, earliest, latest time.Duration) time.Time {
	now := time.Now()
	return now.Add(min(max(at.Sub(now), earliest), latest))
}

// Remembered returns the clients of session affinity.
func (t *Target) Remembered() (out []Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.affinity.mu.Lock()
	defer t.affinity.mu.Unlock()
	for a, s := range t.affinity.by {
		out = append(out, Client{a, s.at, toWall(s.until)})
	}
	return out
}

// Recall adds the clients that another process remembered.
func (t *Target) Recall(list []Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f.AffinityTimeout == 0 {
		return
	}
	t.affinity.mu.Lock()
	defer t.affinity.mu.Unlock()
	for _, c := range list {
		if len(t.affinity.by) < maxStuck {
			t.affinity.by[c.Addr] = stuck{c.At, fromWall(c.Until, 0, t.f.AffinityTimeout)}
		}
	}
}

// Drain waits until the last connection has ended, grace is over or ctx ends. It ends the
// remaining connections and returns how many there were. Listeners must have been closed before.
func (r *Relay) Drain(ctx context.Context, grace time.Duration) (left int64) {
	ctx, stop := context.WithTimeout(ctx, grace)
	defer stop()
	done := make(chan struct{})
	go func() { r.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		left = r.counts.open.Load()
	}
	r.Close()
	return left
}
