package netlink

import "time"

// Much is read that nobody waits for, by programs that have other work at the same time and perhaps one processor. A goroutine
// that reads without a pause keeps the others from it for ten milliseconds at a time, until the Go scheduler takes it
// away; and while nobody sleeps, what comes by a socket or a file is noticed as seldom.
const (
	restAfter = 500 * time.Microsecond
	restFor   = 50 * time.Microsecond
)

// Rest lets others go first now and then. The zero value is ready for use, by one goroutine.
type Rest struct{ woke time.Time }

// Pause is called between two small pieces of work. Mostly it does nothing.
func (r *Rest) Pause() {
	if time.Since(r.woke) < restAfter {
		return
	}
	time.Sleep(restFor)
	r.woke = time.Now()
}

// Gently is a Config.Wrap for a Conn that reads much and may take its time.
func Gently(w Wire) Wire { return &gentle{Wire: w} }

type gentle struct {
	Wire
	rest Rest
}

// Receive implements Wire.
func (g *gentle) Receive(buf []byte, wait bool) (int, error) {
	g.rest.Pause()
	return g.Wire.Receive(buf, wait)
}
