package relay

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// limits are the timeouts of connections.
type limits struct {
	// stall is how long a peer may take nothing while bytes wait for it. Then its connection
	// is reset, because the waiting bytes occupy kernel memory.
	stall time.Duration
	// half is how long a connection may be idle after one side has ended it.
	half time.Duration
	dial time.Duration // until an endpoint has answered
}

func usual() limits {
	return limits{stall: 15 * time.Minute, half: 10 * time.Minute, dial: 3 * time.Second} // a SYN and its first retry
}

// youth is the age from which a connection has keep-alive towards its endpoint. Most end
// before, which saves the calls. The client's side inherits it from the listener.
const youth = time.Second

// conn is a client's connection and that to its endpoint. Only its worker accesses it.
type conn struct {
	w      *worker
	t      *Target
	l      *Listener
	at     netip.AddrPort   // the endpoint
	svc    model.ServiceKey // the Service that the descriptors are charged to
	client side
	server side
	up     half     // client to endpoint
	down   half     // endpoint to client
	call   *dialing // until an endpoint has accepted it

	place      int32
	over       bool // both descriptors are closed
	lost       bool // the endpoint has reset it: what that has sent is delivered, then the client is reset
	queued     bool // to be run again
	keepsAlive bool
	link       link
}

// side is one of the two sockets and its cached state. Events report only changes, so the
// cached state holds until a call returns otherwise.
type side struct {
	fd       int
	readable bool
	writable bool
	ended    bool // the peer has sent its end in good order, behind what can be read
	more     bool // a short read has not read all: an error or out-of-band data is behind it
	written  bool // so that more to write must not wait for the acknowledgement (Nagle)
	noDelay  bool
}

func (s *side) note(events uint32) {
	broken := events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 // calls will return the error; a reset sets EPOLLRDHUP, too
	s.readable = s.readable || broken || events&(unix.EPOLLIN|unix.EPOLLRDHUP) != 0
	s.writable = s.writable || broken || events&unix.EPOLLOUT != 0
	s.ended = s.ended || !broken && events&unix.EPOLLRDHUP != 0
	s.more = s.more || broken || events&unix.EPOLLPRI != 0
}

// happened handles the events of a socket.
func (c *conn) happened(s *side, events uint32) {
	s.note(events)
	if c.call != nil {
		c.called(s, events)
		return
	}
	if s == &c.client && events&unix.EPOLLERR != 0 && (c.up.n > 0 || c.lost) {
		c.abort() // the client is gone; what it has sent waits for an endpoint that is slow or is gone, too
		return
	}
	// Reading from the socket goes first: its bytes may be the last before its error.
	if s.reader(c).step() {
		s.writer(c).step()
	}
}

// reader returns the direction that reads from a side, writer the one that writes to it.
func (s *side) reader(c *conn) *half {
	if s == &c.client {
		return &c.up
	}
	return &c.down
}

func (s *side) writer(c *conn) *half {
	if s == &c.client {
		return &c.down
	}
	return &c.up
}

// move runs both directions once.
func (c *conn) move() {
	if c.up.step() {
		c.down.step()
	}
}

// begin starts to carry the bytes, until both sides have ended or either is broken.
func (c *conn) begin() {
	c.call = nil
	c.w.r.counts.open.Add(1)
	c.t.enter(c)
	c.w.by(c, c.w.now+youth)
	c.move()
}

// due handles the timeouts of the connection that have passed.
func (c *conn) due() {
	w := c.w
	if c.call != nil {
		c.tooLate()
		return
	}
	if c.lost && c.down.ended {
		c.finish()
		return
	}
	if !c.keepsAlive {
		c.keepsAlive = true
		keepAlive(c.server.fd)
	}
	for _, h := range []*half{&c.up, &c.down} {
		limit := h.limit()
		switch {
		case limit == 0:
		case w.now-h.since >= limit:
			w.r.counts.stalled.Add(1)
			w.r.complain(c.svc, "aborted a stalled connection: a peer neither reads nor sends, or is unreachable", unix.ETIMEDOUT)
			c.abort()
			return
		default:
			w.by(c, h.since+limit)
		}
	}
}

// broken ends a connection that one side has broken; the other side reads a reset, too. What
// an endpoint had sent before is delivered first: the kernel keeps what was received before a
// reset, and a write is often the first call to fail.
func (c *conn) broken(s *side, err error) {
	if err == unix.ETIMEDOUT { // keep-alive's
		c.w.r.counts.stalled.Add(1)
		c.w.r.complain(c.svc, "aborted a stalled connection: a peer neither reads nor sends, or is unreachable", err)
	}
	switch {
	case s == &c.client:
		c.abort()
	case c.down.ended || c.lost: // all was read; an error that a second call reports
		c.lost, c.down.ended = true, true
		c.finish()
	default:
		c.lost = true
		c.up.release()
		c.up.ended = true
		c.server.readable, c.server.more = true, true
		c.w.queue(c)
	}
}

// finish resets the client when its kernel has acknowledged all that the endpoint has sent: a
// reset discards what is still to be sent (RFC 9293, 3.10.4).
func (c *conn) finish() {
	unsent, err := unix.IoctlGetInt(c.client.fd, unix.SIOCOUTQ)
	if unsent <= 0 || err != nil || c.w.now-c.down.since >= c.w.r.limits.stall {
		c.abort()
		return
	}
	c.w.by(c, c.w.now+tickEvery)
}

// abort resets both sides.
func (c *conn) abort() {
	unlinger(c.client.fd)
	if c.server.fd >= 0 {
		unlinger(c.server.fd)
	}
	c.close()
}

// close closes both sides, and releases what the connection has held.
func (c *conn) close() {
	w := c.w
	c.over = true
	_ = unix.Close(c.client.fd)
	if c.server.fd >= 0 {
		_ = unix.Close(c.server.fd)
	}
	if c.call == nil {
		c.up.release()
		c.down.release()
		c.t.leave(c)
		w.r.counts.open.Add(-1)
	}
	w.leave(c)
	w.r.budget.give(c.svc, 2)
	w.r.work.Done()
}

// unlinger makes the next close reset the connection: the peer reads "connection reset".
func unlinger(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}
