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

// report takes all problems that one source of them knows now, and notes for the
// followers those that stand of each object that is concerned, or that it is well.
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
	stands := slices.Clone(list)
	switch k := from.(type) {
	case model.ServiceKey:
		stands = append(stands, e.troubled[decision(k)]...)
	case decision:
		stands = append(stands, e.troubled[model.ServiceKey(k)]...)
	case thisNode:
		stands = append(stands, e.troubled[e.nodeOrigin()]...)
	case string:
		if k == e.nodeOrigin() {
			stands = append(stands, e.troubled[thisNode{}]...)
		}
	}
	var objects []string
	for _, p := range slices.Concat(before, list) {
		if slices.Contains(objects, p.Object) {
			continue
		}
		objects = append(objects, p.Object)
		of := slices.DeleteFunc(slices.Clone(stands), func(q model.Problem) bool { return q.Object != p.Object })
		if len(of) == 0 {
			e.turn.Well = append(e.turn.Well, p.Object)
		}
		e.turn.Problems = append(e.turn.Problems, of...)
	}
}
