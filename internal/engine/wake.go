package engine

import (
	"math/rand/v2"
	"time"
)

// gate reports when the engine may write next; not after now: at once. It is zero
// while only an event can open it.
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

// untilNext is how long the loop may sleep if no bell rings. Work that is left waits
// for its time alone: whatever else is due would find the gate closed. So no failure
// makes the loop turn faster than the gate opens.
func (e *Engine) untilNext() time.Duration {
	now := e.p.Now()
	next := now.Add(e.p.Audit)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if e.belief != unknown && e.watching.ended == nil { // before, reconcile tries it again when it must
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

// backoff after n failures in a row: 50 ms doubling to 30 s, with jitter so that
// a fleet does not retry in step.
func backoff(n int) time.Duration {
	d := 50 * time.Millisecond << min(n, 10)
	d = min(d, 30*time.Second)
	return d/2 + rand.N(d/2+1)
}
