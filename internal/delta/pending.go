package delta

import (
	"iter"
	"time"
)

// Pending gives what is different, so ordered that any front part of it can be
// applied by itself: creations from the lowest rank up, so that everything comes
// after what it refers to and what publishes comes last; then changes, in the
// order in which they were wanted, which keeps one owner's together; then
// deletions from the highest rank down. With prune false deletions are left out
// (they stay pending).
func (t *Tracker[K, O]) Pending(prune bool) []Diff[K] {
	t.compact()
	// Sorted by counting: ranks are few and small, and the first list of a large
	// cluster has a million keys.
	var places places
	for _, e := range t.queue {
		places.count(t.placeOf(e, prune))
	}
	out := make([]Diff[K], places.layOut())
	for _, e := range t.queue {
		if at := places.take(t.placeOf(e, prune)); at >= 0 {
			out[at] = Diff[K]{Key: e.key, Have: e.have, Want: e.want}
		}
	}
	return out
}

// placeOf tells among which entries one comes; leftBehind: it stays pending.
func (t *Tracker[K, O]) placeOf(e *entry[K], prune bool) int {
	switch {
	case e.want == "" && prune:
		return numPlaces - 1 - int(t.p.Rank(e.key))
	case e.want == "":
		return leftBehind
	case e.have == "":
		return int(t.p.Rank(e.key))
	}
	return changes
}

// PendingCount is an upper bound of what Pending(true) would give, in O(1).
func (t *Tracker[K, O]) PendingCount() int { return len(t.queue) }

// Commit records that the kernel now holds these wants.
func (t *Tracker[K, O]) Commit(done []Diff[K]) {
	for _, d := range done {
		e := t.entry(d.Key)
		e.have = d.Want
		t.enqueue(e)
		t.forget(e)
	}
	if len(done) > 0 {
		t.compact()
	}
}

// compact drops settled entries from the queue.
func (t *Tracker[K, O]) compact() {
	live := t.queue[:0]
	for _, e := range t.queue {
		if e.have == e.want {
			e.queued = false
			t.forget(e)
			continue
		}
		live = append(live, e)
	}
	clear(t.queue[len(live):])
	t.queue = live
	if len(live) == 0 && cap(live) > 1024 {
		t.queue = nil // a full build's queue is not needed again soon
	}
}

// ReplaceActual makes what the kernel holds be exactly loaded, and queues every
// difference. It returns the keys whose actual value differs from what we believed.
func (t *Tracker[K, O]) ReplaceActual(loaded iter.Seq2[K, string], now time.Time) (drift []Drift[K]) {
	t.epoch++
	for k, v := range loaded {
		e := t.entry(k)
		e.epoch = t.epoch
		if e.have == v {
			continue
		}
		if !samePool(e.have, v, t.p.Width(k)) {
			drift = append(drift, Drift[K]{Key: k, Believed: e.have, Found: v})
		}
		e.have = v
		t.settle(e, now)
	}
	for k, e := range t.entries {
		if e.epoch == t.epoch || e.have == "" {
			continue
		}
		drift = append(drift, Drift[K]{Key: k, Believed: e.have})
		e.have = ""
		t.settle(e, now)
	}
	return drift
}

// Anew gives everything that is wanted of the chosen keys, as creations from the
// lowest rank up. What only lingers is not among it.
func (t *Tracker[K, O]) Anew(chosen func(K) bool) []Diff[K] {
	var places places
	each := func(do func(*entry[K])) {
		for _, e := range t.entries {
			if _, lingers := t.lingering[e]; !lingers && e.want != "" && chosen(e.key) {
				do(e)
			}
		}
	}
	each(func(e *entry[K]) { places.count(int(t.p.Rank(e.key))) })
	out := make([]Diff[K], places.layOut())
	each(func(e *entry[K]) { out[places.take(int(t.p.Rank(e.key)))] = Diff[K]{Key: e.key, Want: e.want} })
	return out
}

// CommitAnew records that the kernel now holds, of the chosen keys, exactly what
// Anew gave.
func (t *Tracker[K, O]) CommitAnew(chosen func(K) bool, done []Diff[K]) {
	t.epoch++
	for _, d := range done {
		e := t.entry(d.Key)
		e.epoch, e.have = t.epoch, d.Want
		t.enqueue(e)
	}
	for k, e := range t.entries {
		if e.epoch == t.epoch || !chosen(k) {
			continue
		}
		e.have = ""
		if _, lingers := t.lingering[e]; lingers {
			delete(t.lingering, e)
			e.want = ""
		}
		t.enqueue(e)
		t.forget(e)
	}
	t.compact()
}

// settle re-derives what is pending for an entry whose have was just read.
func (t *Tracker[K, O]) settle(e *entry[K], now time.Time) {
	if e.refs == 0 {
		if d := t.p.Linger(e.key); d > 0 && e.have != "" {
			if _, waits := t.lingering[e]; !waits {
				t.lingering[e] = now.Add(d)
			}
			e.want = e.have
			return
		}
		delete(t.lingering, e)
		e.want = ""
	} else if w := t.p.Width(e.key); w > 0 && e.want != "" {
		e.want = align(e.have, e.want, w)
	}
	t.enqueue(e)
	t.forget(e)
}

// Expire queues the deletion of unused keys whose linger time is over and tells
// when the next one is due (zero: none waits).
func (t *Tracker[K, O]) Expire(now time.Time) (next time.Time) {
	for e, due := range t.lingering {
		if due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		delete(t.lingering, e)
		e.want = ""
		t.enqueue(e)
		t.forget(e)
	}
	return next
}
