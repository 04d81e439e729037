package engine

import (
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// decision is the key of the Problems that policy reports about a Service. The ServiceKey is
// the key of those that the source reports. Both refer to the same object.
type decision model.ServiceKey

// noteProblems records the Problems of an event.
func (e *Engine) noteProblems(ev *model.Event) {
	if len(ev.Problems) == 0 && len(e.troubled) == 0 {
		return
	}
	switch {
	case ev.Service != nil:
		e.report(ev.Service.Key, ev.Problems)
	case ev.Slice != nil:
		e.report(ev.Slice.Key, ev.Problems)
	default:
		e.report(ev.Origin, ev.Problems)
	}
}

// reported is an object with a new report in a sync, and the event key of its Problems.
type reported struct {
	of     any
	object string
}

// report replaces the Problems of one reporter by list. At the end of the sync,
// gatherProblems passes on the current Problems of each affected object.
func (e *Engine) report(from any, list []model.Problem) {
	if len(list) == 0 && len(e.troubled) == 0 {
		return
	}
	before := e.troubled[from]
	if slices.Equal(before, list) {
		return
	}
	if len(list) > 0 {
		e.troubled[from] = list
	} else {
		delete(e.troubled, from)
	}
	of, _ := e.reporters(from)
	for _, p := range slices.Concat(before, list) {
		e.turn.reported = append(e.turn.reported, reported{of, p.Object})
	}
}

// reporters returns the two reporters that may have Problems of one object, given either of
// them; second is nil if there is only one.
func (e *Engine) reporters(from any) (first, second any) {
	switch k := from.(type) {
	case model.ServiceKey:
		return k, decision(k)
	case decision:
		return model.ServiceKey(k), k
	case thisNode:
		return e.nodeOrigin(), k
	case string:
		if k == e.nodeOrigin() {
			return k, thisNode{}
		}
	}
	return from, nil
}

// gatherProblems fills Turn.Problems with all current Problems of each object that has a
// new report, and Turn.Well with the objects whose Problems are resolved.
func (e *Engine) gatherProblems() {
	if len(e.turn.reported) == 0 {
		return
	}
	done := map[reported]struct{}{}
	for _, r := range e.turn.reported {
		if _, is := done[r]; is {
			continue
		}
		done[r] = struct{}{}
		first, second := e.reporters(r.of)
		stand := len(e.turn.Problems)
		for _, p := range slices.Concat(e.troubled[first], e.troubled[second]) {
			if p.Object == r.object {
				e.turn.Problems = append(e.turn.Problems, p)
			}
		}
		if len(e.turn.Problems) == stand {
			e.turn.Well = append(e.turn.Well, r.object)
		}
	}
	e.turn.reported = nil
}
