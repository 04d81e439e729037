package engine

import (
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// quarantine is the state of a Service whose objects the kernel rejected. The Service keeps
// its last good state in the kernel. It is retried when it changes, and with a backoff,
// because the cause may have been a temporary lack of kernel memory.
type quarantine struct {
	tries   int
	retryAt time.Time
	trial   bool // retried in this sync; the quarantine ends if the sync succeeds
	last    Held // the report of it
}

// The first retry comes after firstRetry, each further one after twice as long.
const (
	firstRetry = 10 * time.Second
	maxRetry   = 30 * time.Minute
)

// putAside quarantines the owners of the rejected objects, all of one answer at once, so
// that everything else is applied. It reports aside as false if no Service owns the
// objects: the base objects (tables, hooks) belong to no Service, and then everything is
// retried. An object without an owner may be kept for the quarantined Services. Then the
// objects that it refers to must stay (Spare). If it was deleted and cannot be restored,
// it is abandoned (LetGo). eased reports whether either happened.
func (e *Engine) putAside(bad *dataplane.InvalidError) (aside, eased bool) {
	owners := e.tr.Owners(bad.Keys)
	if _, base := owners[owner{}]; base {
		return false, false
	}
	now := e.p.Now()
	eased = e.tr.Spare(bad.Keys)
	eased = e.tr.LetGo(bad.Keys, e.belief == broken, now) || eased
	for o, keys := range owners {
		q := e.held[o]
		if q == nil {
			q = &quarantine{last: Held{Service: o, Since: now}}
			e.held[o] = q
		}
		q.trial = false
		q.retryAt = now.Add(min(firstRetry<<min(q.tries, 8), maxRetry))
		q.tries++
		e.tr.Hold(o, now)
		objects := make([]string, len(keys))
		for i, k := range keys {
			objects[i] = e.p.Driver.KeyString(k)
		}
		q.last.Objects, q.last.Err, q.last.RetryAt = objects, bad.Err, q.retryAt
		e.turn.Quarantined = append(e.turn.Quarantined, Quarantined{Service: o, Objects: objects, Err: bad.Err})
	}
	return len(owners) > 0, eased
}

// retryHeld restores the desired state of the quarantined Services whose retry is due.
func (e *Engine) retryHeld(s scope) {
	now := e.turn.Started
	var list []model.ServiceKey
	for o, q := range e.held {
		if !q.retryAt.After(now) {
			q.trial = true
			list = append(list, o)
		}
	}
	e.decide(list, s)
}

// freeHeld ends the quarantine of the Services whose retry has succeeded.
func (e *Engine) freeHeld() {
	for o, q := range e.held {
		if q.trial {
			delete(e.held, o)
		}
	}
}

// postponeTrials is for a sync that could write nothing: the retried Services are part of
// the desired state already, so they need no further retry until a write is possible.
func (e *Engine) postponeTrials() {
	for _, q := range e.held {
		if q.trial {
			q.retryAt = e.p.Now().Add(maxRetry)
		}
	}
}

// isHeld reports whether the kernel still has an older decision for a Service.
func (e *Engine) isHeld(k model.ServiceKey) bool {
	q := e.held[k]
	return q != nil && !q.trial
}
