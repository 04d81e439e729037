package delta

import (
	"slices"
	"time"
)

// The owner layer: a key is desired as long as at least one owner wants it.

// record is the desired state of one owner, each key once.
type record[K comparable, O comparable] struct {
	owner O
	wants []*entry[K, O]
}

// Set replaces the desired state of owner by objs, and ends the owner's quarantine.
// The cost is proportional to the owner's objects; while KeepUnseen is in force, a Set that wants an unseen key visits every
// key if Params.Part is set. now is the start of the linger time of keys that are released.
// Set with no objects removes the owner.
//
// Two owners of one key must desire the same value. If they do not, the last call
// wins (policy resolves such claims before it calls Set).
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
	next := old // an owner lists its keys in a fixed order, so most are found without a table lookup
	for _, o := range objs {
		var e *entry[K, O]
		if e, next = along(next, o.Key); e == nil {
			e = t.entry(o.Key)
		}
		if e.round != t.round { // an owner may list a key twice
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

// along searches a key among the first three entries of a list, and returns its entry and the rest of the list. If the key
// is not there it returns nil and the whole list.
func along[K comparable, O comparable](list []*entry[K, O], key K) (*entry[K, O], []*entry[K, O]) {
	const near = 3
	for i := range min(near, len(list)) {
		if list[i].key == key {
			return list[i], list[i+1:]
		}
	}
	return nil, list
}

// take adds an owner to a key. The caller calls it once for each key of the owner.
func (t *Tracker[K, O]) take(e *entry[K, O], r *record[K, O]) {
	if e.refs++; e.refs == 1 {
		t.claimed = t.claimed || t.keeping && e.first == nil && e.have != ""
		e.first = r
	}
	t.endLinger(e)
	r.wants = append(r.wants, e)
}

// release removes one owner from a key.
func (t *Tracker[K, O]) release(e *entry[K, O], now time.Time) {
	if e.refs--; e.refs == 0 {
		t.unwanted(e, now)
	}
}

// unwanted updates the desired value of a key that no owner wants. The key stays while an
// owner in quarantine holds it, while it is kept as unseen, or for its linger time.
func (t *Tracker[K, O]) unwanted(e *entry[K, O], now time.Time) {
	if t.isHeld(e) || t.keep(e) || t.linger(e, now) {
		return
	}
	t.want(e, "")
	t.forget(e)
}

// Has reports whether the owner wants anything.
func (t *Tracker[K, O]) Has(owner O) bool { return t.owners[owner] != nil }

// Owners returns, for each owner of at least one of the keys, which of the keys it wants.
// An entry with one owner stores that owner; for the others one walk visits all owners.
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

// Additions returns the pending creations of owners of which the kernel holds nothing
// yet, from the lowest rank up. Applying them changes no existing object. An owner
// qualifies only if every key that it alone owns is absent; keys that other owners want
// too, or that linger with the desired value, may exist. Every owner depends on the
// objects of base: if only a part of those exists, Additions returns none.
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

// isNew reports whether the kernel holds no object that belongs to this owner alone, except lingering ones with the desired
// value.
func (t *Tracker[K, O]) isNew(r *record[K, O]) bool {
	return !slices.ContainsFunc(r.wants, func(e *entry[K, O]) bool {
		lingers := e.have == e.want && t.p.Linger(e.key) > 0
		return e.have != "" && e.refs == 1 && !lingers
	})
}

// isThere reports whether all objects of an owner are in sync.
func (r *record[K, O]) isThere() bool {
	return !slices.ContainsFunc(r.wants, func(e *entry[K, O]) bool { return e.have != e.want })
}

// Owned returns the keys that an owner wants, with their desired and actual values.
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
