package relay

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// turnsAtOnce bounds how often one direction reads before other connections run.
	turnsAtOnce = 2
	// trickle: a direction that moves less between two pauses does not need a pipe.
	trickle = 8 << 10
)

// half is one direction of a connection. Bytes are copied through its worker's buffer
// while they are few; a sender that fills that gets a pipe, through which they pass
// without leaving the kernel. A direction holds bytes only while its receiver takes none.
type half struct {
	c        *conn
	from, to *side
	other    *half
	ended    bool // this direction has been closed without an error

	bulk  bool
	burst int // bytes through pipes since the last pause
	lent  *pipe
	buf   *[]byte       // what the receiver has not taken, where there is no pipe
	off   int           // where that begins
	n     int           // bytes that wait in lent or buf
	since time.Duration // of the last byte that moved
}

func (h *half) init(c *conn, from, to *side, other *half) {
	h.c, h.from, h.to, h.other = c, from, to, other
}

// limit returns how long a direction may stay open without a byte; 0: for ever.
func (h *half) limit() time.Duration {
	switch {
	case h.n > 0:
		return h.c.w.r.limits.stall
	case !h.ended && h.other.ended:
		return h.c.w.r.limits.half
	}
	return 0
}

// step moves what can be moved now. It returns false if the connection is over.
func (h *half) step() bool {
	if h.ended || h.c.over {
		return !h.c.over
	}
	for range turnsAtOnce {
		if h.n > 0 && !h.drain() {
			return !h.c.over
		}
		if !h.from.readable || !h.to.writable {
			h.pause()
			return true
		}
		if !h.fill() {
			return !h.c.over
		}
	}
	if h.from.readable {
		h.c.w.queue(h.c)
	}
	return true
}

// fill reads once, and writes that if there is no pipe. It returns false if this direction is over.
func (h *half) fill() bool {
	if h.bulk && (h.lent != nil || h.lend()) {
		return h.suck()
	}
	w := h.c.w
	n, err := unix.Read(h.from.fd, w.buf)
	if n <= 0 {
		return h.unread(err)
	}
	last := false
	if h.bulk = n == len(w.buf); !h.bulk && !h.from.more {
		h.from.readable = false // less than asked for: that was all
		last = h.from.ended     // and the end is behind it
	}
	if !h.write(w.buf[:n], last) {
		return false
	}
	if last && h.n == 0 {
		h.end()
		return false
	}
	h.from.readable = h.from.readable || last
	return true
}

// unread handles a read that returned no bytes. It returns false if this direction is over.
func (h *half) unread(err error) bool {
	switch {
	case err == unix.EINTR:
		return true
	case err == unix.EAGAIN && !h.c.lost:
		h.from.readable = false
		return true
	case err != nil && err != unix.EAGAIN:
		h.c.broken(h.from, err)
	default: // end of stream, or the end of what an endpoint has sent before it was lost
		h.end()
	}
	return false
}

// write sends bytes to the receiver, and keeps what it does not take now; last: there will
// be no more. It returns false if the connection is over.
func (h *half) write(b []byte, last bool) bool {
	h.eager()
	n, err := h.send(b, last)
	for err == unix.EINTR {
		n, err = h.send(b, last)
	}
	if err != nil && err != unix.EAGAIN {
		h.c.broken(h.to, err)
		return false
	}
	h.moved(max(n, 0))
	if n = max(n, 0); n < len(b) {
		h.keep(b[n:])
	}
	return true
}

func (h *half) send(b []byte, last bool) (int, error) {
	if last { // with the end, in one segment
		return unix.SendmsgN(h.to.fd, b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_MORE)
	}
	return unix.Write(h.to.fd, b)
}

func (h *half) moved(n int) {
	h.c.w.r.counts.bytes.Add(int64(n))
	h.since = h.c.w.now
}

// eager makes the kernel send at once from the second write on (TCP_NODELAY); the first one
// does not wait for anything.
func (h *half) eager() {
	if h.to.written && !h.to.noDelay {
		h.to.noDelay = true
		_ = unix.SetsockoptInt(h.to.fd, unix.SOL_TCP, unix.TCP_NODELAY, 1)
	}
	h.to.written = true
}

// end forwards the end of one direction. From now on the other direction has a timeout.
func (h *half) end() {
	h.release()
	h.ended = true
	if h.c.lost {
		h.c.finish()
		return
	}
	if h.other.ended {
		h.c.close()
		return
	}
	_ = unix.Shutdown(h.to.fd, unix.SHUT_WR)
	h.other.since = h.c.w.now
	h.c.w.by(h.c, h.c.w.now+h.c.w.r.limits.half)
}
