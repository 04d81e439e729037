package engine

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// MaxPause is the longest pause that Pace makes, kube-proxy's minSyncPeriod; and how
// far ahead of its pauses a change may go that takes endpoints away. Packets to these
// are lost until it is in: it must not wait because another change went in just
// before, as that of the other family does. Over time the pauses are the same.
const MaxPause = time.Second

// rest notes the end of a write, and the pause that it asks for.
func (e *Engine) rest(now time.Time) {
	pause := max(e.p.MinSync, min(time.Duration(e.p.Pace)*e.turn.Phases[PhaseApply], MaxPause))
	e.lastEnd = now
	if e.rested.Before(now) {
		e.rested = now
	}
	e.rested = e.rested.Add(pause)
}

// resume reports when the pauses let the next write begin.
func (e *Engine) resume(now time.Time) time.Time {
	if e.p.Pace == 0 || !e.hurry && !e.departureDue(now) {
		return e.rested
	}
	early, least := e.rested.Add(-MaxPause), e.lastEnd.Add(e.p.MinSync)
	if early.After(least) {
		return early
	}
	return least
}

// departureDue reports whether an endpoint was kept for long enough.
func (e *Engine) departureDue(now time.Time) bool {
	for _, list := range e.leaving {
		if slices.ContainsFunc(list, func(d departure) bool { return !d.due.After(now) }) {
			return true
		}
	}
	return false
}

// nextDeparture reports when the first endpoint after a time was kept for long enough;
// zero if there is none.
func (e *Engine) nextDeparture(after time.Time) (next time.Time) {
	for _, list := range e.leaving {
		for i := range list {
			if due := list[i].due; due.After(after) && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
	}
	return next
}

// takesAway reports whether an endpoint that served, in slices as they were before a
// change, is not in its slice any more or serves no more. A slice that is gone whole
// may have moved: it counts when it was kept for long enough.
func (e *Engine) takesAway(was []*model.Slice) bool {
	for _, old := range was {
		svc, list := e.st.Service(old.Service)
		at := slices.IndexFunc(list, func(s *model.Slice) bool { return s.Key == old.Key })
		if svc == nil || at >= 0 && len(remove(serving(old), serving(list[at]))) > 0 {
			return true
		}
	}
	return false
}

func serving(s *model.Slice) []model.Endpoint {
	return slices.DeleteFunc(slices.Clone(s.Endpoints), func(e model.Endpoint) bool { return !e.Serving })
}
