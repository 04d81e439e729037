package relay

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	tickEvery = 100 * time.Millisecond
	spokes    = 128
)

// wheel is a timer wheel of connections: each is in a list of those that are due in the
// same tenth of a second, so that adding and removing costs a few assignments. Those that
// are due later than one turn of the wheel are put in again.
type wheel struct {
	lists [spokes]*conn
	at    int64 // the last tick that was handled
	count int
}

// link is a connection's place in the wheel.
type link struct {
	next, prev *conn
	spoke      int8
	in         bool
	due        time.Duration
}

func tickOf(t time.Duration) int64 { return int64(t / tickEvery) }

// put schedules a connection for when it is due, a tick later at most; one that is in
// already stays if that is due sooner.
func (x *wheel) put(c *conn, due, now time.Duration) {
	if c.link.in {
		if c.link.due <= due {
			return
		}
		x.drop(c)
	}
	if x.count == 0 {
		x.at = tickOf(now)
	}
	tick := min(max(tickOf(due)+1, x.at+1), x.at+spokes-1)
	k := tick % spokes
	c.link = link{next: x.lists[k], spoke: int8(k), in: true, due: due}
	if c.link.next != nil {
		c.link.next.link.prev = c
	}
	x.lists[k] = c
	x.count++
}

func (x *wheel) drop(c *conn) {
	if !c.link.in {
		return
	}
	if c.link.prev != nil {
		c.link.prev.link.next = c.link.next
	} else {
		x.lists[c.link.spoke] = c.link.next
	}
	if c.link.next != nil {
		c.link.next.link.prev = c.link.prev
	}
	c.link = link{}
	x.count--
}

// due removes and returns the connections that are due. A clock that was stopped for longer
// than a turn of the wheel makes all spokes due once.
func (x *wheel) due(now time.Duration) (out []*conn) {
	to := tickOf(now)
	x.at = max(x.at, to-spokes)
	for ; x.at < to; x.at++ {
		for c := x.lists[(x.at+1)%spokes]; c != nil; {
			next, due := c.link.next, c.link.due
			x.drop(c)
			out = append(out, c)
			c.link.due = due
			c = next
		}
	}
	return out
}

// by schedules a connection for when it is due.
func (w *worker) by(c *conn, due time.Duration) {
	w.wheel.put(c, due, w.now)
	if w.ticking {
		return
	}
	w.ticking = true
	every := unix.NsecToTimespec(int64(tickEvery))
	_ = unix.TimerfdSettime(w.clock, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil) // its arguments are right
}

// tick handles the connections that are due.
func (w *worker) tick() {
	var count [8]byte
	_, _ = unix.Read(w.clock, count[:])
	for _, c := range w.wheel.due(w.now) {
		switch due := c.link.due; {
		case c.over:
		case due > w.now:
			w.wheel.put(c, due, w.now)
		default:
			c.due()
		}
	}
	if w.wheel.count == 0 {
		w.ticking = false
		_ = unix.TimerfdSettime(w.clock, 0, &unix.ItimerSpec{}, nil)
	}
}
