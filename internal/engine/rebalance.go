package engine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// The EndpointSlice controller moves endpoints from slice to slice in several writes, so
// that for milliseconds an endpoint may be in no slice. Following each write would write
// the kernel twice and end the endpoint's UDP flows. So the removal of an endpoint that
// may have moved is held for departPause. An endpoint may have moved if its Service has
// another slice for the same ports, or if its whole slice was deleted. Additions are
// applied at once, and so are all changes of a Service with one slice.

// departPause is how long the removal of an endpoint that may have moved is held.
const departPause = 100 * time.Millisecond

// departure is a held removal: a slice of endpoints that are no longer in any slice, kept until due.
type departure struct {
	slice *model.Slice
	due   time.Time
}

// depart compares the previous state of changed slices with the current one, and holds
// the removal of the endpoints that may be moving.
func (e *Engine) depart(was []*model.Slice, now time.Time) {
	for _, old := range was {
		svc, list := e.st.Service(old.Service)
		if svc == nil {
			continue
		}
		if lost := lostEndpoints(old, list); lost != nil {
			e.leaving[old.Service] = append(e.leaving[old.Service], departure{lost, now.Add(departPause)})
		}
	}
}

// arrive ends the held removals of endpoints that are in a slice of the given events.
func (e *Engine) arrive(events []model.Event) {
	if len(e.leaving) == 0 {
		return
	}
	for i := range events {
		if ev := events[i].Slice; ev != nil && ev.Value != nil {
			e.arriveIn(ev.Value)
		}
	}
}

// arriveIn ends the held removals of endpoints that are in a slice of the same ports.
func (e *Engine) arriveIn(sl *model.Slice) {
	list := e.leaving[sl.Service]
	list = slices.DeleteFunc(list, func(d departure) bool {
		if sibling(sl, d.slice) {
			d.slice.Endpoints = remove(d.slice.Endpoints, sl.Endpoints)
		}
		return len(d.slice.Endpoints) == 0
	})
	e.keepLeaving(sl.Service, list)
}

// keepLeaving replaces the held removals of a Service.
func (e *Engine) keepLeaving(k model.ServiceKey, list []departure) {
	if len(list) == 0 {
		delete(e.leaving, k)
	} else {
		e.leaving[k] = list
	}
}

// departed ends the held removals that are due, and marks their Services as dirty.
func (e *Engine) departed(now time.Time) {
	for k, list := range e.leaving {
		kept := slices.DeleteFunc(list, func(d departure) bool { return !d.due.After(now) })
		if len(kept) < len(list) {
			e.noteChanged(k)
			e.dirty[k] = struct{}{}
		}
		e.keepLeaving(k, kept)
	}
}

// lostEndpoints returns a slice of the endpoints that were in old and are in none of
// the current slices; nil if there are none, or if they cannot have moved.
func lostEndpoints(old *model.Slice, now []*model.Slice) *model.Slice {
	var same *model.Slice
	siblings := false
	for _, s := range now {
		switch {
		case s.Key == old.Key:
			same = s
		case sibling(s, old):
			siblings = true
		}
	}
	if same != nil && !siblings {
		return nil
	}
	lost := slices.Clone(old.Endpoints)
	if same != nil && sibling(same, old) { // usually nearly all are still there
		lost = remove(lost, same.Endpoints)
	}
	for i := 0; i < len(now) && len(lost) > 0; i++ {
		if sibling(now[i], old) {
			lost = remove(lost, now[i].Endpoints)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	out := *old
	out.Key.Name += "\x00" // no object has this name
	out.Endpoints = slices.Clip(lost)
	return &out
}

// sibling reports whether two slices are for the same ports of a Service, so that the
// controller may move endpoints from one to the other.
func sibling(a, b *model.Slice) bool {
	return a.Family == b.Family && slices.Equal(a.Ports, b.Ports)
}

// remove deletes from a list, in place, the endpoints whose addresses are in another
// list. In two states of one slice, most endpoints have the same index.
func remove(list, other []model.Endpoint) []model.Endpoint {
	const few = 8
	kept, strange := list[:0], 0
	var there map[netip.Addr]struct{} // the addresses of other; built after a few mismatches
	for i := range list {
		a := list[i].Addr
		if i < len(other) && other[i].Addr == a {
			continue
		}
		if strange++; strange > few && there == nil {
			there = addresses(other)
		}
		_, is := there[a]
		if is || there == nil && hasAddr(other, a) {
			continue
		}
		kept = append(kept, list[i])
	}
	return kept
}

func hasAddr(list []model.Endpoint, a netip.Addr) bool {
	for i := range list {
		if list[i].Addr == a {
			return true
		}
	}
	return false
}

func addresses(list []model.Endpoint) map[netip.Addr]struct{} {
	out := make(map[netip.Addr]struct{}, len(list))
	for i := range list {
		out[list[i].Addr] = struct{}{}
	}
	return out
}
