package file

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// catalog records which file defines which object, and what was delivered of each
// object.
type catalog struct {
	entries map[id]*entry
	dirty   map[id]struct{}
	cluster bool // model.Event.Cluster was delivered
}

type entry struct {
	claims []claim // sorted by name of the file; the first is used
	told   *object // the object that was delivered last; nil if none was, or if its removal was delivered

	toldProblems []model.Problem
}

type claim struct {
	file   *manifest
	object *object
}

func newCatalog() *catalog {
	return &catalog{entries: make(map[id]*entry), dirty: make(map[id]struct{})}
}

// replace updates the objects of a file from before to now. Both lists are sorted.
func (c *catalog) replace(file *manifest, before, now []*object) {
	for len(before) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || (len(before) > 0 && before[0].id.compare(now[0].id) < 0):
			c.drop(file, before[0].id)
			before = before[1:]
		case len(before) == 0 || before[0].id.compare(now[0].id) > 0:
			c.claim(file, now[0])
			now = now[1:]
		default:
			if before[0] != now[0] {
				c.claim(file, now[0])
			}
			before, now = before[1:], now[1:]
		}
	}
}

func (c *catalog) claim(file *manifest, o *object) {
	e := c.entries[o.id]
	if e == nil {
		e = &entry{}
		c.entries[o.id] = e
	}
	c.dirty[o.id] = struct{}{}
	at, ok := e.find(file)
	if ok {
		e.claims[at].object = o
		return
	}
	e.claims = slices.Insert(e.claims, at, claim{file, o})
}

func (c *catalog) drop(file *manifest, k id) {
	e := c.entries[k]
	if e == nil {
		return
	}
	if at, ok := e.find(file); ok {
		e.claims = slices.Delete(e.claims, at, at+1)
		c.dirty[k] = struct{}{}
	}
}

func (e *entry) find(file *manifest) (int, bool) {
	return slices.BinarySearchFunc(e.claims, file, func(c claim, f *manifest) int {
		return cmp.Compare(c.file.name, f.name)
	})
}

// want returns the desired state of an entry: its object and its Problems. The
// object is nil if no file defines it.
func (e *entry) want() (*object, []model.Problem) {
	if len(e.claims) == 0 {
		return nil, nil
	}
	first := e.claims[0]
	problems := first.object.problems
	for _, other := range e.claims[1:] {
		problems = append(slices.Clip(problems), model.Problem{
			Object: first.object.id.String(),
			Reason: fmt.Sprintf("also defined in %s: the definition in %s is used", other.file.name, first.file.name),
		})
	}
	return first.object, problems
}

// order is compare, except that removed Services sort before the other Services, which may reuse their
// addresses.
func (c *catalog) order(a, b id) int {
	gone := func(k id) int {
		if k.kind == serviceKind && len(c.entries[k].claims) > 0 {
			return 1
		}
		return 0
	}
	if a.kind == serviceKind && b.kind == serviceKind && gone(a) != gone(b) {
		return gone(a) - gone(b)
	}
	return a.compare(b)
}

// ofCluster delivers, once, that the folder describes a cluster.
func (c *catalog) ofCluster(now time.Time, sink func(model.Event)) {
	if !c.cluster {
		c.cluster = true
		sink(model.Event{Cluster: true, Received: now})
	}
}

// flush delivers the entries that are dirty and differ from what was delivered.
// triggered is false for the initial content of the folder.
func (c *catalog) flush(now time.Time, triggered bool, sink func(model.Event)) {
	ranges := false
	for _, k := range slices.SortedFunc(maps.Keys(c.dirty), c.order) {
		e := c.entries[k]
		object, problems := e.want()
		if k.kind == nodeKind && object != nil {
			c.ofCluster(now, sink)
		}
		unchanged := (e.told.same(object) || (e.told.empty() && object.empty())) && slices.Equal(e.toldProblems, problems)
		e.toldProblems = problems
		if object == nil {
			delete(c.entries, k)
		}
		if unchanged {
			continue // told is not updated: consumers keep a reference to that value
		}
		e.told = object
		if k.kind == cidrKind {
			ranges = true
			continue
		}
		event := k.event(object)
		event.Received, event.Problems = now, problems
		if triggered {
			event.Trigger = now
			if len(e.claims) > 0 {
				event.Trigger = e.claims[0].file.modified
			}
		}
		sink(event)
	}
	clear(c.dirty)
	if ranges {
		sink(c.ranges(now))
	}
}

// ranges returns one event with all ServiceCIDRs, because they are delivered as one
// object.
func (c *catalog) ranges(now time.Time) model.Event {
	event := model.Event{CIDRs: &model.ServiceCIDRs{}, Origin: "ServiceCIDRs", Received: now}
	for _, k := range slices.SortedFunc(maps.Keys(c.entries), id.compare) {
		if k.kind != cidrKind {
			continue
		}
		object, problems := c.entries[k].want()
		event.CIDRs.Prefixes = append(event.CIDRs.Prefixes, object.cidrs...)
		event.Problems = append(event.Problems, problems...)
	}
	slices.SortFunc(event.CIDRs.Prefixes, netip.Prefix.Compare)
	event.CIDRs.Prefixes = slices.Compact(event.CIDRs.Prefixes)
	return event
}
