package engine

import (
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// decision is the key of what policy says about a Service; its ServiceKey is that of
// what the source says. Both speak of one object.
type decision model.ServiceKey

// noteProblems keeps what an event says.
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

// reported is an object of which a turn learned something, and the event key of its Problems.
type reported struct {
	of     any
	object string
}

// report replaces the Problems of one reporter by list. gatherProblems passes on, at the
// end of the turn, what stands then of each object that is concerned.
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

// reporters returns the two reporters that may know Problems of one object, whichever of
// them from is; second is nil where there is one only.
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

// gatherProblems fills Turn.Problems with all that stand of each object that was reported
// on, and Turn.Well with the objects that have none any more.
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
