package engine

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// MaxPause is the longest pause that Pace causes, kube-proxy's minSyncPeriod. It is also
// how much earlier than the end of its pauses an urgent change may be written: one that
// removes endpoints. Packets to these endpoints are lost until the change is applied, so
// it must not wait because another change was applied just before, such as that of the
// other family. Over time the pauses are the same.
const MaxPause = time.Second

// rest records the end of a write, and extends the rate limit by the pause that the write requires.
func (e *Engine) rest(now time.Time) {
	pause := max(e.p.MinSync, min(time.Duration(e.p.Pace)*e.turn.Phases[PhaseApply], MaxPause))
	e.lastEnd = now
	if e.rested.Before(now) {
		e.rested = now
	}
	e.rested = e.rested.Add(pause)
}

// resume returns when the rate limit allows the next write to start.
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

// departureDue reports whether the hold of a removed endpoint is over.
func (e *Engine) departureDue(now time.Time) bool {
	for _, list := range e.leaving {
		if slices.ContainsFunc(list, func(d departure) bool { return !d.due.After(now) }) {
			return true
		}
	}
	return false
}

// nextDeparture returns when the next hold of a removed endpoint ends after the given
// time; zero if there is none.
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

// takesAway reports whether an endpoint that served in a previous state of its slice is
// no longer in the slice or no longer serves. The endpoints of a deleted slice may have
// moved: they count when their hold is over.
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

// serving returns the endpoints that serve, ready or terminating.
func serving(s *model.Slice) []model.Endpoint {
	return slices.DeleteFunc(slices.Clone(s.Endpoints), func(e model.Endpoint) bool { return !e.Serving })
}
