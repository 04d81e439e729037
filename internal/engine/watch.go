package engine

import (
	"context"
	"time"
)

// watching is the state of the driver's Watch, which runs in a goroutine, and of its retry.
type watching struct {
	ended    <-chan error // its end; nil: it is not running
	since    time.Time
	failures int       // in a row
	retryAt  time.Time // after a failure; zero: there was none
}

// steadyWatch is how long a Watch must have run for its end to count as the first.
const steadyWatch = time.Minute

// startWatch starts the watcher goroutine, unless it runs or has just failed.
// Before the first full build the engine starts it only after a conflict with another
// program. A Watch makes the agent's own large transactions more expensive, because the
// kernel builds a message per element. Without it every write of another program looks
// like a write to the agent's objects, and a build among many writers would never end.
func (e *Engine) startWatch(ctx context.Context) {
	w, now := &e.watching, e.p.Now()
	if w.ended != nil || now.Before(w.retryAt) {
		return
	}
	ended := make(chan error, 1) // size 1: the watcher's only message, its end
	w.ended, w.since = ended, now
	go func() { ended <- e.p.Driver.Watch(ctx, e.ring) }()
}

// watchEnded schedules the next Watch, which raises an alarm if anything was changed before
// it was established. Until then the driver is queried after each failure. So even if no Watch
// succeeds again, a write of another program stays undetected for at most the backoff.
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
	e.p.Log.Warn("the watch for changes by other programs failed; it will be restarted", "error", err, "failures", w.failures, "in", pause)
	e.onAlarm(ctx)
}

// joinWatch waits for the watcher goroutine, if there is one.
func (e *Engine) joinWatch() {
	if e.watching.ended == nil {
		return
	}
	if err := <-e.watching.ended; err != nil {
		e.p.Log.Warn("the watch for changes by other programs failed", "error", err)
	}
}

// ring raises an alarm. It may be called from any goroutine.
func (e *Engine) ring() {
	select {
	case e.alarm <- struct{}{}:
	default:
	}
}

// onAlarm requires a new read of the kernel unless the driver reports that nothing changed.
func (e *Engine) onAlarm(ctx context.Context) { e.ask(ctx) }

// ask queries the driver for a write since the last successful Apply or Load. A write of the
// agent itself whose answer was lost counts too.
func (e *Engine) ask(ctx context.Context) {
	wrote, err := e.p.Driver.Changed(ctx)
	e.turn.Reads++
	if err != nil {
		e.p.Log.Warn("cannot check whether another program changed the kernel state", "error", err)
	}
	if wrote || err != nil {
		e.on(changed)
	} else {
		e.on(unchanged)
	}
}
