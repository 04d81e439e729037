package relay

import "golang.org/x/sys/unix"

// enter assigns a place to a connection of the worker.
func (w *worker) enter(c *conn) {
	if n := len(w.free); n > 0 {
		c.place, w.free = w.free[n-1], w.free[:n-1]
	} else {
		c.place = int32(len(w.conns))
		w.conns, w.uses = append(w.conns, nil), append(w.uses, 0)
	}
	w.conns[c.place] = c
	w.uses[c.place] = (w.uses[c.place] + 1) & 0x7fffffff
}

// leave frees the place of a connection whose descriptors are closed.
func (w *worker) leave(c *conn) {
	w.wheel.drop(c)
	w.conns[c.place] = nil
	w.free = append(w.free, c.place)
}

// follow adds a side of a connection to the worker's epoll descriptor.
func (w *worker) follow(c *conn, s *side) error {
	id := c.place << 1
	if s == &c.server {
		id++
	}
	return w.watch(s.fd, edges, id, w.uses[c.place])
}

// happened passes an event to the connection of its socket.
func (w *worker) happened(ev *unix.EpollEvent) {
	place := ev.Fd >> 1
	c := w.conns[place]
	if c == nil || w.uses[place] != ev.Pad {
		return // a stale event: the connection has ended
	}
	s := &c.client
	if ev.Fd&1 == 1 {
		s = &c.server
	}
	c.happened(s, ev.Events)
}

// knock records that clients wait at a listener: open connections come first.
func (w *worker) knock(fd int32) {
	w.mu.Lock()
	l := w.listeners[fd]
	w.mu.Unlock()
	if l != nil { // else it has just been closed
		w.knocks = append(w.knocks, l)
	}
}

// open accepts some of the clients that wait at each listener.
func (w *worker) open() {
	for i, l := range w.knocks {
		l.take(w)
		w.knocks[i] = nil
	}
	w.knocks = w.knocks[:0]
}

// goOn runs the connections that have run once and have more to move.
func (w *worker) goOn() {
	list := w.again
	w.again = nil
	for _, c := range list {
		if c.queued = false; !c.over {
			c.move()
		}
	}
}

// queue makes the worker run the connection again.
func (w *worker) queue(c *conn) {
	if !c.queued {
		c.queued = true
		w.again = append(w.again, c)
	}
}
