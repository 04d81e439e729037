package relay

import (
	"sync"
	"time"
)

// gate pauses and resumes the goroutine that reads from a socket: while another
// process prepares to take over, no process reads, and clients wait in the kernel's queue.
type gate struct {
	deadline func(time.Time) error // of the socket, for what the goroutine waits for

	mu     sync.Mutex
	closed chan struct{} // while shut: closed when it opens; else nil
	parked chan struct{} // closed when the goroutine waits here
	left   chan struct{} // closed when the goroutine has ended
}

func (g *gate) init(deadline func(time.Time) error) {
	g.deadline, g.left = deadline, make(chan struct{})
}

// leave is called by the goroutine when it ends.
func (g *gate) leave() { close(g.left) }

// shut pauses the goroutine. It returns when the goroutine reads nothing any more.
func (g *gate) shut() {
	parked := make(chan struct{})
	g.mu.Lock()
	g.closed, g.parked = make(chan struct{}), parked
	g.mu.Unlock()
	_ = g.deadline(time.Unix(1, 0))
	select {
	case <-parked:
	case <-g.left:
	}
}

// open resumes the goroutine; it does nothing if the gate was not shut.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		return
	}
	_ = g.deadline(time.Time{}) // of a socket that is closed: the goroutine sees that itself
	close(g.closed)
	g.closed = nil
}

// wait is called by the goroutine when the deadline has passed: it blocks while the gate is shut.
func (g *gate) wait() {
	g.mu.Lock()
	closed, parked := g.closed, g.parked
	g.parked = nil
	g.mu.Unlock()
	if closed == nil {
		return
	}
	if parked != nil {
		close(parked)
	}
	<-closed
}
