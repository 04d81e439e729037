package engine

import (
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// quarantine is a Service that the kernel refused. It keeps its last good state
// and is tried again when it changes, and now and then (the kernel may have been
// short of memory, not of sense).
type quarantine struct {
	tries   int
	retryAt time.Time
	trial   bool // wanted again in this turn; over when the turn succeeds
	last    Held // what is told of it
}

// The first retry comes after firstRetry, each further one after twice as long.
const (
	firstRetry = 10 * time.Second
	maxRetry   = 30 * time.Minute
)

// putAside holds the owners of the refused objects, all of one answer at once, so
// that everything else goes in. It says false if no Service could be blamed: the
// base objects (tables, hooks) are no Service's, and then all is tried again.
// What nobody owns is kept for those in quarantine: then what it leads to must stay,
// or, if it is gone and cannot be put back, it must go.
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

// retryHeld wants what quarantined Services want again, when their time has come.
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

// freeHeld forgets the quarantined Services that have just gone in.
func (e *Engine) freeHeld() {
	for o, q := range e.held {
		if q.trial {
			delete(e.held, o)
		}
	}
}

// postponeTrials is for a turn that could write nothing: the Services are wanted
// already, so there is nothing to do for them until the write is possible.
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
