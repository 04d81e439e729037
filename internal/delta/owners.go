package delta

import (
	"slices"
	"time"
)

// The layer of owners: a key is wanted as long as one owner wants it.

// record is what one owner wants, each key once.
type record[K comparable, O comparable] struct {
	owner O
	wants []*entry[K, O]
}

// Set makes objs all that owner wants, replacing what it wanted before, and ends
// its quarantine. Cost is proportional to the owner's objects. now is used for
// Linger only.
//
// Two owners that want one key must want the same value; if they do not, the
// last call wins (policy settles such claims before they come here).
func (t *Tracker[K, O]) Set(owner O, objs []Object[K], now time.Time) {
	r := t.owners[owner]
	if r == nil {
		r = &record[K, O]{owner: owner}
	}
	old := r.wants
	t.remember(owner, old)
	t.round++
	t.group++
	r.wants = make([]*entry[K, O], 0, len(objs))
	next := old // an owner names its keys in one order, so they are mostly found without the table
	for _, o := range objs {
		var e *entry[K, O]
		if e, next = along(next, o.Key); e == nil {
			e = t.entry(o.Key)
		}
		if e.round != t.round { // an owner may name a key twice
			e.round = t.round
			t.take(e, r)
		}
		t.want(e, o.Value)
		t.overrule(e)
	}
	t.endHold(owner, now)
	for _, e := range old {
		t.release(e, now)
	}
	if t.claimed && t.p.Part != nil {
		t.reviewUnwanted(now)
	}
	if len(r.wants) == 0 {
		delete(t.owners, owner)
		return
	}
	t.owners[owner] = r
}

// along looks for a key near the beginning of a list, and gives what comes after it.
func along[K comparable, O comparable](list []*entry[K, O], key K) (*entry[K, O], []*entry[K, O]) {
	const near = 3
	for i := range min(near, len(list)) {
		if list[i].key == key {
			return list[i], list[i+1:]
		}
	}
	return nil, list
}

func (t *Tracker[K, O]) take(e *entry[K, O], r *record[K, O]) {
	if e.refs++; e.refs == 1 {
		t.claimed = t.claimed || t.keeping && e.first == nil && e.have != ""
		e.first = r
	}
	t.endLinger(e)
	r.wants = append(r.wants, e)
}

// release takes one owner away from a key.
func (t *Tracker[K, O]) release(e *entry[K, O], now time.Time) {
	if e.refs--; e.refs == 0 {
		t.unwanted(e, now)
	}
}

// unwanted says what becomes of a key that no owner wants: it stays while a Service
// in quarantine holds it, while it is kept as unseen, or for its linger time.
func (t *Tracker[K, O]) unwanted(e *entry[K, O], now time.Time) {
	if t.isHeld(e) || t.keep(e) || t.linger(e, now) {
		return
	}
	t.want(e, "")
	t.forget(e)
}

// Has reports whether the owner wants anything.
func (t *Tracker[K, O]) Has(owner O) bool { return t.owners[owner] != nil }

// Owners tells, for each owner of one of the keys, which of them it wants. A key
// that has one owner knows it; for the others all owners are asked, once.
func (t *Tracker[K, O]) Owners(keys []K) map[O][]K {
	out := map[O][]K{}
	shared := map[*entry[K, O]]struct{}{}
	for _, k := range keys {
		switch e := t.entries[k]; {
		case e == nil || e.refs == 0:
		case e.refs == 1 && slices.Contains(e.first.wants, e):
			out[e.first.owner] = append(out[e.first.owner], k)
		default:
			shared[e] = struct{}{}
		}
	}
	if len(shared) == 0 {
		return out
	}
	for o, r := range t.owners {
		for _, e := range r.wants {
			if _, asked := shared[e]; asked {
				out[o] = append(out[o], e.key)
			}
		}
	}
	return out
}

// Additions returns what owners want of whom the kernel holds nothing yet, as
// creations from the lowest rank up: to write them changes nothing that is there.
// An owner is one of them only if every key of its own is absent; keys that others
// want too, or that linger and are as wanted, may be there. Everything stands on what base wants: if that is there in part, there are none.
func (t *Tracker[K, O]) Additions(base O) []Diff[K] {
	if r := t.owners[base]; r == nil || !t.isNew(r) && !r.isThere() {
		return nil
	}
	t.round++
	for _, r := range t.owners {
		if t.isNew(r) {
			for _, e := range r.wants {
				e.round = t.round
			}
		}
	}
	return t.inOrder(func(e *entry[K, O]) int {
		if e.round != t.round || e.have != "" || e.want == "" {
			return leftBehind
		}
		return int(t.p.Rank(e.key))
	})
}

func (t *Tracker[K, O]) isNew(r *record[K, O]) bool {
	return !slices.ContainsFunc(r.wants, func(e *entry[K, O]) bool {
		lingers := e.have == e.want && t.p.Linger(e.key) > 0
		return e.have != "" && e.refs == 1 && !lingers
	})
}

func (r *record[K, O]) isThere() bool {
	return !slices.ContainsFunc(r.wants, func(e *entry[K, O]) bool { return e.have != e.want })
}

// Owned returns what an owner wants, and what is there of it.
func (t *Tracker[K, O]) Owned(owner O) []Diff[K] {
	r := t.owners[owner]
	if r == nil {
		return nil
	}
	out := make([]Diff[K], 0, len(r.wants))
	for _, e := range r.wants {
		out = append(out, Diff[K]{Key: e.key, Have: e.have, Want: e.want, Group: e.group})
	}
	return out
}
