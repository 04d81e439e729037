package relay

import (
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stallLimit: a peer that has taken nothing for so long while bytes wait for it
	// is given up; what waits is kernel memory that nobody else can use.
	stallLimit = 15 * time.Minute
	// halfLimit: so long may a connection be silent after one side has ended it.
	halfLimit = 10 * time.Minute
)

// half is one direction of a connection.
type half struct {
	r        *Relay
	from, to *net.TCPConn
	src, dst syscall.RawConn
	other    *half
	ended    bool // guarded by conn.mu: this direction has been closed in good order

	lent  *pipe
	buf   *[]byte // where no pipe was left
	n     int     // bytes in lent or buf
	err   error
	armed bool // a write deadline is set
}

func newHalf(r *Relay, to, from *net.TCPConn) (*half, error) {
	src, err := from.SyscallConn()
	if err != nil {
		return nil, err
	}
	dst, err := to.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &half{r: r, from: from, to: to, src: src, dst: dst}, nil
}

// run moves bytes until the sender ends; nil means that it ended in good order.
func (h *half) run(closing func() bool) (moved int64, err error) {
	fill, drain := h.fill, h.drain // bound once: a connection makes no garbage as it goes on
	for {
		if closing() {
			_ = h.from.SetReadDeadline(time.Now().Add(halfLimit))
		}
		if err := h.src.Read(fill); err != nil {
			return moved, err
		}
		if h.err != nil || h.n == 0 {
			h.release(true)
			return moved, h.err
		}
		n := h.n
		err := h.dst.Write(drain)
		if err == nil {
			err = h.err
		}
		if h.armed {
			h.armed = false
			_ = h.to.SetWriteDeadline(time.Time{})
		}
		h.release(h.n == 0)
		if err != nil {
			return moved, err
		}
		moved += int64(n)
	}
}

// fill takes what the sender has sent; false: nothing yet.
func (h *half) fill(fd uintptr) bool {
	if h.lent == nil && h.buf == nil {
		h.lend()
	}
	for {
		h.n, h.err = h.take(int(fd))
		switch h.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			h.n, h.err = 0, nil
			h.release(true) // whoever is idle holds nothing
			return false
		}
		return true
	}
}

func (h *half) take(fd int) (int, error) {
	if h.lent == nil {
		n, err := unix.Read(fd, *h.buf)
		return max(n, 0), err
	}
	n, err := unix.Splice(fd, nil, h.lent.w, nil, pipeBytes, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(max(n, 0)), err
}

// drain gives the receiver what was taken; false: it takes no more now.
func (h *half) drain(fd uintptr) bool {
	total := h.n
	for h.n > 0 {
		n, err := h.pass(int(fd), total-h.n)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if h.buf != nil && total != h.n { // what is left begins where the next turn looks
				copy(*h.buf, (*h.buf)[total-h.n:total])
			}
			if !h.armed {
				h.armed = true
				_ = h.to.SetWriteDeadline(time.Now().Add(stallLimit))
			}
			return false
		case err != nil:
			h.err = err
			return true
		case n == 0:
			h.err = io.ErrShortWrite
			return true
		default:
			h.n -= n
		}
	}
	return true
}

func (h *half) pass(fd, done int) (int, error) {
	if h.lent == nil {
		return unix.Write(fd, (*h.buf)[done:done+h.n])
	}
	n, err := unix.Splice(h.lent.r, nil, fd, nil, h.n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(n), err
}

func (h *half) lend() {
	if h.lent = h.r.pipes.get(); h.lent == nil {
		h.buf = h.r.buffers.Get().(*[]byte)
	}
}

func (h *half) release(empty bool) {
	if h.lent != nil {
		h.r.pipes.put(h.lent, empty)
		h.lent = nil
	}
	if h.buf != nil {
		h.r.buffers.Put(h.buf)
		h.buf = nil
	}
}
