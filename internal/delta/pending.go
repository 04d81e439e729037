package delta

import (
	"iter"
	"slices"
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
	var created, gone ranked[K]
	var changed []Diff[K]
	for _, e := range t.queue {
		d := Diff[K]{Key: e.key, Have: e.have, Want: e.want}
		switch {
		case e.want == "" && prune:
			gone.add(t.p.Rank(e.key), d)
		case e.want == "":
		case e.have == "":
			created.add(t.p.Rank(e.key), d)
		default:
			changed = append(changed, d)
		}
	}
	out := make([]Diff[K], 0, created.n+len(changed)+gone.n)
	for _, list := range created.byRank {
		out = append(out, list...)
	}
	out = append(out, changed...)
	for _, list := range slices.Backward(gone.byRank) {
		out = append(out, list...)
	}
	return out
}

// ranked sorts by counting: ranks are few and small.
type ranked[K comparable] struct {
	byRank [][]Diff[K]
	n      int
}

func (r *ranked[K]) add(rank int, d Diff[K]) {
	for len(r.byRank) <= rank {
		r.byRank = append(r.byRank, nil)
	}
	r.byRank[rank] = append(r.byRank[rank], d)
	r.n++
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
// difference. It returns the keys whose state was not what we believed, with
// what we believed in Want and what is there in Have.
func (t *Tracker[K, O]) ReplaceActual(loaded iter.Seq2[K, string], now time.Time) (drift []Diff[K]) {
	t.epoch++
	for k, v := range loaded {
		e := t.entry(k)
		e.epoch = t.epoch
		if e.have == v {
			continue
		}
		if !samePool(e.have, v, t.p.Width(k)) {
			drift = append(drift, Diff[K]{Key: k, Have: v, Want: e.have})
		}
		e.have = v
		t.settle(e, now)
	}
	for k, e := range t.entries {
		if e.epoch == t.epoch || e.have == "" {
			continue
		}
		drift = append(drift, Diff[K]{Key: k, Want: e.have})
		e.have = ""
		t.settle(e, now)
	}
	return drift
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
