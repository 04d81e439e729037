package engine

import (
	"context"
	"time"
)

// watching is the driver's Watch in a goroutine, and when it may be tried again.
type watching struct {
	ended    <-chan error // its end; nil: it is not running
	since    time.Time
	failures int       // in a row
	retryAt  time.Time // after a failure; zero: there was none
}

// steadyWatch is how long a Watch must have run for its end to count as the first.
const steadyWatch = time.Minute

// startWatch starts the watcher goroutine, unless it runs or has just failed.
// Before the first full build only if somebody is in our way: to listen makes our
// own big transactions dearer (the kernel builds a message per element), but
// without it every write of a neighbour looks like one to our objects, and a build
// among many would not come to an end.
func (e *Engine) startWatch(ctx context.Context) {
	w, now := &e.watching, e.p.Now()
	if w.ended != nil || now.Before(w.retryAt) {
		return
	}
	ended := make(chan error, 1) // size 1: the watcher's only message, its end
	w.ended, w.since = ended, now
	go func() { ended <- e.p.Driver.Watch(ctx, e.ring) }()
}

// watchEnded plans the next Watch, which rings if anything was changed before it
// stands. Until then the driver is asked after each failure: so, even if none ever
// stands again, a foreign write goes unseen for as long as the backoff at most.
func (e *Engine) watchEnded(ctx context.Context, err error) {
	w, now := &e.watching, e.p.Now()
	w.ended = nil
	if ctx.Err() != nil {
		return
	}
	if now.Sub(w.since) >= steadyWatch {
		w.failures = 0
	}
	w.failures++
	pause := backoff(w.failures)
	w.retryAt = now.Add(pause)
	e.p.Log.Warn("watching the kernel for foreign changes ended, will begin again", "error", err, "failures", w.failures, "in", pause)
	e.onAlarm(ctx)
}

// joinWatch waits for the watcher goroutine, if there is one.
func (e *Engine) joinWatch() {
	if e.watching.ended == nil {
		return
	}
	if err := <-e.watching.ended; err != nil {
		e.p.Log.Warn("watching the kernel for foreign changes ended", "error", err)
	}
}

// ring may be called from any goroutine.
func (e *Engine) ring() {
	select {
	case e.alarm <- struct{}{}:
	default:
	}
}

// onAlarm has the kernel compared again unless the driver knows better.
func (e *Engine) onAlarm(ctx context.Context) { e.ask(ctx) }

// ask asks the driver whether anybody wrote, we ourselves included with a write
// whose answer was lost.
func (e *Engine) ask(ctx context.Context) {
	wrote, err := e.p.Driver.Changed(ctx)
	e.turn.Reads++
	if err != nil {
		e.p.Log.Warn("cannot ask the kernel whether anybody changed it", "error", err)
	}
	if wrote || err != nil {
		e.on(changed)
	} else {
		e.on(unchanged)
	}
}
