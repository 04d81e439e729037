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
}

// putAside holds the owners of the refused objects, so that everything else goes
// in. It says false if no Service could be blamed.
func (e *Engine) putAside(bad *dataplane.InvalidError) bool {
	byOwner := map[owner][]string{}
	for _, k := range bad.Keys {
		for o := range e.tr.Owners(k) {
			byOwner[o] = append(byOwner[o], e.p.Driver.KeyString(k))
		}
	}
	if _, base := byOwner[owner{}]; base {
		return false // tables and hooks are no Service's: try again, load, at last rebuild
	}
	for o, objects := range byOwner {
		q := e.held[o]
		if q == nil {
			q = &quarantine{}
			e.held[o] = q
		}
		q.tries++
		q.trial = false
		q.retryAt = e.p.Now().Add(min(10*time.Second<<min(q.tries-1, 8), 30*time.Minute))
		e.tr.Hold(o)
		e.turn.Quarantined = append(e.turn.Quarantined, Quarantined{Service: o, Objects: objects, Err: bad.Err})
	}
	for _, k := range bad.Keys { // shared objects are held by nobody alone
		e.tr.HoldKey(k)
	}
	return len(byOwner) > 0
}

// retryHeld wants what quarantined Services want again, when their time has come.
func (e *Engine) retryHeld(now time.Time) {
	for o, q := range e.held {
		if q.retryAt.After(now) {
			continue
		}
		e.decide([]model.ServiceKey{o}, now)
		q.trial = true
		e.held[o] = q // decide took it out, for it might have changed
	}
}

// freeHeld forgets the quarantined Services that have just gone in.
func (e *Engine) freeHeld() {
	for o, q := range e.held {
		if q.trial {
			delete(e.held, o)
		}
	}
}
