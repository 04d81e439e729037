package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
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
	// idleAfter: so long, or half of it, a goroutine waits for a sender before it
	// leaves that to the parker, whose way is the longer one.
	idleAfter = time.Second
)

// errIdle ends a goroutine whose sender has nothing to say.
var errIdle = errors.New("nothing to move")

// half is one direction of a connection.
type half struct {
	c        *conn
	from, to *net.TCPConn
	src, dst syscall.RawConn
	other    *half
	ended    atomic.Bool // this direction has been closed in good order
	stays    bool        // it cannot be parked

	// Of the goroutine.
	lent   *pipe
	buf    *[]byte // where no pipe was left
	n      int     // bytes in lent or buf
	err    error
	armed  bool      // a write deadline is set
	looked bool      // since it was last asked whether there is something to read
	until  time.Time // the read deadline; zero for none
	final  bool      // the sender is given up then

	// Of who waits when there is none; guarded by conn.mu.
	parked bool
	fd     int32 // the sender's descriptor
}

func (h *half) init(c *conn, other *half, from, to *net.TCPConn) {
	h.c, h.other, h.from, h.to = c, other, from, to
	h.src, _ = from.SyscallConn() // fails for a nil connection only
	h.dst, _ = to.SyscallConn()
}

// run moves bytes until the sender ends, in good order if the error is nil, or has
// nothing to say for a while: errIdle.
func (h *half) run() (moved int64, err error) {
	fill, drain := h.fill, h.drain // bound once: a connection makes no garbage as it goes on
	h.expect(time.Time{})
	for {
		h.looked = false
		if err := h.src.Read(fill); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) || h.looked && h.final {
				return moved, err
			}
			if h.looked && !h.other.ended.Load() {
				return moved, errIdle
			}
			h.expect(time.Time{}) // of a wait before the last bytes, or before the other side has ended
			continue
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

// expect sets the read deadline.
func (h *half) expect(t time.Time) {
	if h.until != t {
		h.until = t
		_ = h.from.SetReadDeadline(t)
	}
}

// await bounds the wait for a sender that has nothing to say now. true: there is to be
// none, for too many wait already.
func (h *half) await() bool {
	now := time.Now()
	if h.final = h.other.ended.Load(); h.final {
		h.expect(now.Add(halfLimit))
		return false
	}
	if !h.stays && h.c.t.r.counts.moving.Load() > h.c.t.r.maxMoving {
		return true
	}
	if h.until.Sub(now) < idleAfter/2 { // not each time on a busy connection
		h.expect(now.Add(idleAfter))
	}
	return false
}

// fill takes what the sender has sent; false: nothing yet.
func (h *half) fill(fd uintptr) bool {
	h.looked = true
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
			if h.await() {
				h.err = errIdle
				return true
			}
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
	if h.lent = h.c.t.r.pipes.get(); h.lent == nil {
		h.buf = h.c.t.r.buffers.Get().(*[]byte)
	}
}

func (h *half) release(empty bool) {
	if h.lent != nil {
		h.c.t.r.pipes.put(h.lent, empty)
		h.lent = nil
	}
	if h.buf != nil {
		h.c.t.r.buffers.Put(h.buf)
		h.buf = nil
	}
}
