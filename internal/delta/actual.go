package delta

import (
	"iter"
	"time"
)

// Commit records that the kernel has applied these changes: their desired values are now the actual ones.
func (t *Tracker[K, O]) Commit(done []Diff[K]) {
	for _, d := range done {
		e := t.entry(d.Key)
		t.has(e, d.Want)
		t.enqueue(e)
		t.forget(e)
	}
	t.compact()
}

// ReplaceActual replaces the actual state by loaded, and queues every key whose desired
// and actual values differ. It returns the drift: the keys whose actual value differs
// from the one that the tracker assumed.
func (t *Tracker[K, O]) ReplaceActual(loaded iter.Seq2[K, string], now time.Time) (drift []Drift[K]) {
	t.round++
	t.look++
	for k, v := range loaded {
		e := t.entry(k)
		e.round = t.round
		if e.have == v {
			continue
		}
		if !samePool(e.have, v, t.p.Width(k)) {
			drift = append(drift, Drift[K]{Key: k, Believed: e.have, Found: v})
		}
		t.has(e, v)
	}
	var ownerless []*entry[K, O]
	for k, e := range t.entries {
		if e.round != t.round && e.have != "" {
			drift = append(drift, Drift[K]{Key: k, Believed: e.have})
			t.has(e, "")
		}
		if e.refs == 0 {
			ownerless = append(ownerless, e)
		}
	}
	t.requeue(ownerless, now)
	return drift
}

// requeue recomputes the queue: first the pending changes of each owner, so that they
// stay together, then those of the keys that no owner wants.
func (t *Tracker[K, O]) requeue(ownerless []*entry[K, O], now time.Time) {
	for _, e := range t.queue {
		e.queued = false
	}
	clear(t.queue)
	t.queue = t.queue[:0]
	for _, r := range t.owners {
		t.group++
		for _, e := range r.wants {
			if e.want != e.have {
				t.want(e, e.want)
			}
		}
	}
	t.orphans = nil
	for _, e := range ownerless {
		if t.isOrphan(e) && t.p.Inert != nil && t.p.Inert(e.key) {
			t.orphans = append(t.orphans, e)
		}
		if t.isHeld(e) {
			t.enqueue(e) // a held key is restored
		} else {
			t.unwanted(e, now)
		}
	}
}

// Anew returns the desired state of the chosen keys, as creations from the lowest rank
// up. Keys that only linger are left out.
func (t *Tracker[K, O]) Anew(chosen func(K) bool) []Diff[K] {
	var places places
	each := func(do func(*entry[K, O])) {
		for _, e := range t.entries {
			if _, lingers := t.lingering[e]; !lingers && e.want != "" && chosen(e.key) {
				do(e)
			}
		}
	}
	each(func(e *entry[K, O]) { places.count(int(t.p.Rank(e.key))) })
	out := make([]Diff[K], places.layOut())
	each(func(e *entry[K, O]) {
		out[places.take(int(t.p.Rank(e.key)))] = Diff[K]{Key: e.key, Want: e.want, Group: e.group}
	})
	return out
}

// CommitAnew records that the kernel now holds, of the chosen keys, exactly those that
// Anew returned.
func (t *Tracker[K, O]) CommitAnew(chosen func(K) bool, done []Diff[K]) {
	t.round++
	t.look++
	for _, d := range done {
		e := t.entry(d.Key)
		e.round = t.round
		t.has(e, d.Want)
		t.enqueue(e)
	}
	for k, e := range t.entries {
		if e.round == t.round || !chosen(k) {
			continue
		}
		t.has(e, "")
		if _, lingers := t.lingering[e]; lingers {
			delete(t.lingering, e)
			e.want = ""
		}
		t.enqueue(e)
		t.forget(e)
	}
	t.compact()
}
