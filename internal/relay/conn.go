package relay

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// conn is a client's connection and that to its endpoint. Each direction has a
// goroutine while it moves bytes; one that has nothing to move is parked, and costs none.
type conn struct {
	t    *Target
	at   netip.AddrPort   // the endpoint
	svc  model.ServiceKey // who pays for the descriptors
	up   half             // client to endpoint
	down half

	mu     sync.Mutex
	broken bool
	done   int // directions that are over
}

// carry moves the bytes both ways until both sides have ended, or either is broken.
func (t *Target) carry(client, server *net.TCPConn, at netip.AddrPort, svc model.ServiceKey) {
	r := t.r
	c := &conn{t: t, at: at, svc: svc}
	c.up.init(c, &c.down, client, server)
	c.down.init(c, &c.up, server, client)
	r.counts.open.Add(1)
	r.work.Add(1)
	t.enter(c)
	r.mu.Lock()
	r.conns[c] = struct{}{}
	r.mu.Unlock()
	if r.ctx.Err() != nil { // Close may not have seen it
		c.abort()
	}
	r.counts.moving.Add(2)
	go c.move(&c.down)
	c.move(&c.up)
}

// move moves one direction until it is over or parked. Its end is passed on, so that a
// half-closed connection stays usable the other way. What breaks one side resets the other.
func (c *conn) move(h *half) {
	counts := &c.t.r.counts
	defer counts.moving.Add(-1)
	for {
		moved, err := h.run()
		counts.bytes.Add(moved)
		switch {
		case errors.Is(err, errIdle):
			if c.park(h) {
				return
			}
			continue
		case err == nil:
			c.end(h)
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT): // the latter is keep-alive's
			counts.stalled.Add(1)
			c.t.r.complain(c.svc, "a connection is given up: its peer takes nothing, says nothing or is gone", err)
			fallthrough
		default:
			c.abort()
		}
		c.leave()
		return
	}
}

// park hands a direction to the parker; false: its goroutine is to go on.
func (c *conn) park(h *half) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken || h.other.ended.Load() {
		return false
	}
	if err := c.t.r.parker.add(h); err != nil {
		h.stays = true
		return false
	}
	h.parked = true
	return true
}

// wake gives a parked direction a goroutine again.
func (c *conn) wake(h *half) {
	c.mu.Lock()
	was := h.parked
	h.parked = false
	if was {
		c.t.r.parker.drop(h)
	}
	c.mu.Unlock()
	if was {
		c.t.r.counts.moving.Add(1)
		go c.move(h)
	}
}

// end passes the end of one direction on. The other one waits for its sender, from now
// on not for ever.
func (c *conn) end(h *half) {
	_ = h.to.CloseWrite()
	h.ended.Store(true)
	c.wake(h.other)
}

// abort resets both sides; false: that has been done.
func (c *conn) abort() bool {
	c.mu.Lock()
	broken, parked := c.broken, 0
	c.broken = true
	for _, h := range []*half{&c.up, &c.down} {
		if h.parked {
			h.parked = false
			c.t.r.parker.drop(h)
			parked++
		}
	}
	c.mu.Unlock()
	if broken {
		return false
	}
	reset(c.up.from)
	reset(c.down.from)
	for range parked {
		c.leave()
	}
	return true
}

// leave says that one direction is over; the second one closes the connection.
func (c *conn) leave() {
	c.mu.Lock()
	c.done++
	last := c.done == 2
	c.mu.Unlock()
	if !last {
		return
	}
	r := c.t.r
	c.t.leave(c)
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	_, _ = c.up.from.Close(), c.down.from.Close()
	r.counts.open.Add(-1)
	r.budget.give(c.svc, 2)
	r.work.Done()
}
