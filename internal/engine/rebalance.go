package engine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// The controller of EndpointSlices moves endpoints from slice to slice in several
// writes, so that for milliseconds an endpoint may be in none. To follow would write
// the kernel twice and end its UDP flows. So an endpoint that leaves a slice is kept
// for as long as departPause if it may have moved: its Service has another slice for
// the same ports, or the slice is gone as a whole. What comes goes in at once, and
// so does all that happens to a Service of one slice.

// departPause is how long an endpoint that may have moved is kept.
const departPause = 100 * time.Millisecond

// departure is a slice of endpoints that are in no slice any more, until due.
type departure struct {
	slice *model.Slice
	due   time.Time
}

// depart looks at slices as they were before a change, and keeps the endpoints that
// may be moving. It ends the wait for those that have arrived.
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

// departed ends the waits that are over, and those for endpoints that have arrived.
func (e *Engine) departed(now time.Time) {
	for k, list := range e.leaving {
		_, there := e.st.Service(k)
		kept := slices.DeleteFunc(list, func(d departure) bool {
			if !d.due.After(now) {
				e.noteChanged(k)
				e.dirty[k] = struct{}{}
				return true
			}
			return missing(d.slice.Endpoints, d.slice, there) == nil
		})
		if len(kept) == 0 {
			delete(e.leaving, k)
		} else {
			e.leaving[k] = kept
		}
	}
}

// lostEndpoints gives a slice of the endpoints that were in old and are in none of
// the slices now; nil if there are none, or if they cannot have moved.
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
	left := old.Endpoints
	if same != nil && sibling(same, old) { // nearly all are still there, mostly
		left = without(left, same.Endpoints)
	}
	lost := missing(left, old, now)
	if len(lost) == 0 {
		return nil
	}
	out := *old
	out.Key.Name += "\x00" // no object has this name
	out.Endpoints = lost
	return &out
}

// sibling tells whether two slices are for the same ports of a Service, so that the
// controller may move endpoints from one to the other.
func sibling(a, b *model.Slice) bool {
	return a.Family == b.Family && slices.Equal(a.Ports, b.Ports)
}

// missing gives those endpoints of a slice that none of its siblings in list has.
func missing(endpoints []model.Endpoint, of *model.Slice, list []*model.Slice) []model.Endpoint {
	for _, s := range list {
		if len(endpoints) == 0 {
			return nil
		}
		if sibling(s, of) {
			endpoints = without(endpoints, s.Endpoints)
		}
	}
	if len(endpoints) == 0 {
		return nil
	}
	return endpoints
}

// without gives the endpoints of a list whose addresses are not in another.
func without(list, other []model.Endpoint) (out []model.Endpoint) {
	const few = 8
	if len(list) > few {
		return withoutMany(list, other)
	}
	for i := range list {
		if !slices.ContainsFunc(other, func(o model.Endpoint) bool { return o.Addr == list[i].Addr }) {
			out = append(out, list[i])
		}
	}
	return out
}

func withoutMany(list, other []model.Endpoint) (out []model.Endpoint) {
	there := make(map[netip.Addr]struct{}, len(other))
	for i := range other {
		there[other[i].Addr] = struct{}{}
	}
	for i := range list {
		if _, is := there[list[i].Addr]; !is {
			out = append(out, list[i])
		}
	}
	return out
}
