package relay

import (
	"io"

	"golang.org/x/sys/unix"
)

// keep stores what the receiver has not taken, until it takes more.
func (h *half) keep(b []byte) {
	h.buf = h.c.w.r.buffers.Get().(*[]byte)
	h.c.w.r.counts.moving.Add(1)
	h.off, h.n = 0, copy(*h.buf, b)
	h.stuck()
}

// stuck marks the receiver as not writable: bytes wait, because it takes none now.
func (h *half) stuck() {
	h.to.writable = false
	h.c.w.by(h.c, h.c.w.now+h.c.w.r.limits.stall)
}

// lend assigns a pipe to the direction. It reports whether there was one.
func (h *half) lend() bool {
	if h.lent = h.c.w.r.pipes.get(); h.lent != nil {
		h.c.w.r.counts.moving.Add(1)
	}
	return h.lent != nil
}

// suck reads into the pipe, from which drain writes to the receiver. It returns false if this direction is over.
func (h *half) suck() bool {
	n, err := unix.Splice(h.from.fd, nil, h.lent.w, nil, pipeBytes, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if n <= 0 {
		return h.unread(err)
	}
	h.n = int(n)
	h.burst += h.n
	h.since = h.c.w.now
	return true
}

// drain sends the waiting bytes to the receiver. It returns false if the receiver does not take
// all, or the connection is over.
func (h *half) drain() bool {
	for h.n > 0 {
		if !h.to.writable {
			return false
		}
		n, err := h.pass()
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			h.stuck()
		case err == nil && n == 0: // the pipe is empty although it should hold bytes
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			h.c.broken(h.to, err)
			return false
		default:
			h.n -= n
			h.off += n
			h.moved(n)
		}
	}
	if h.buf != nil {
		h.release()
	}
	return true
}

func (h *half) pass() (int, error) {
	h.eager()
	if h.lent == nil {
		return unix.Write(h.to.fd, (*h.buf)[h.off:h.off+h.n])
	}
	n, err := unix.Splice(h.lent.r, nil, h.to.fd, nil, h.n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(n), err
}

// pause releases what a direction does not need while it waits for its sender.
func (h *half) pause() {
	if h.n > 0 {
		return
	}
	h.bulk = h.bulk && (h.lent == nil || h.burst >= trickle)
	h.release()
}

// release returns the pipe and the buffer to their pools.
func (h *half) release() {
	if h.lent != nil {
		h.c.w.r.pipes.put(h.lent, h.n == 0)
		h.c.w.r.counts.moving.Add(-1)
		h.lent, h.burst = nil, 0
	}
	if h.buf != nil {
		h.c.w.r.counts.moving.Add(-1)
		h.c.w.r.buffers.Put(h.buf)
		h.buf = nil
	}
	h.n, h.off = 0, 0
}
