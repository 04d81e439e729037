package relay

import (
	"sync"

	"golang.org/x/sys/unix"
)

// pipeBytes is how much may be on its way in one direction of one connection. A user
// may have 16384 pages in pipes (pipe-user-pages-soft): 256 pipes of this size.
const pipeBytes = 256 << 10

// pipe is a kernel pipe; bytes are spliced into w and out of r.
type pipe struct{ r, w int }

// pipes lends pipes to directions in which bytes are moving: an idle connection has
// none. When all are lent the bytes are copied through a buffer instead.
type pipes struct {
	mu   sync.Mutex
	idle []*pipe
	left int // how many more may be made
}

// get returns a pipe, nil if there is none.
func (p *pipes) get() *pipe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		out := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return out
	}
	if p.left <= 0 {
		return nil
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	p.left--
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes) // a smaller one works too
	return &pipe{r: fds[0], w: fds[1]}
}

// put returns a pipe to the pool; one that may still hold bytes is closed.
func (p *pipes) put(x *pipe, empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if empty {
		p.idle = append(p.idle, x)
		return
	}
	p.left++
	_, _ = unix.Close(x.r), unix.Close(x.w)
}

// close closes the pipes that are not in use.
func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.idle {
		_, _ = unix.Close(x.r), unix.Close(x.w)
	}
	p.idle, p.left = nil, 0
}
