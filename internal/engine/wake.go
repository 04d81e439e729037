package engine

import (
	"math/rand/v2"
	"time"
)

// gate returns when the engine may write next; a time that is not after now means at once. It is zero
// while only an event can open the gate.
func (e *Engine) gate(now time.Time) time.Time {
	if e.scope(now) == nothing {
		return e.started.Add(e.p.SyncLimit)
	}
	at := e.retryAt
	if resume := e.resume(now); resume.After(at) {
		at = resume
	}
	return at
}

// untilNext returns how long the loop may sleep without a notification. If work is left, it
// waits for its next run, because other work that is due would find the gate closed. So no
// failure makes the loop run more often than the gate opens.
func (e *Engine) untilNext() time.Duration {
	now := e.p.Now()
	next := now.Add(e.p.Audit)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if e.belief != unknown && e.watching.ended == nil { // otherwise reconcile restarts the Watch when it must
		sooner(e.watching.retryAt)
	}
	if !e.owed.IsZero() {
		sooner(e.owed)
		sooner(e.nextDeparture(now)) // it may open the gate earlier
		return max(next.Sub(now), time.Millisecond)
	}
	if e.belief == believed {
		sooner(e.audit)
	}
	sooner(e.tr.NextExpiry())
	sooner(e.nextDrain())
	for _, q := range e.held {
		sooner(q.retryAt)
	}
	sooner(e.nextDeparture(time.Time{}))
	return max(next.Sub(now), time.Millisecond)
}

// backoff returns the delay of the retry after n failures in a row: 50 to 100 ms after the
// first, doubling to 15 to 30 s. The jitter keeps a fleet from retrying at the same time.
func backoff(n int) time.Duration {
	d := 50 * time.Millisecond << min(n, 10)
	d = min(d, 30*time.Second)
	return d/2 + rand.N(d/2+1)
}
