package delta

import (
	"iter"
	"time"
)

// The linger layer: a key of a kind that lingers stays for its linger time after its
// last owner has released it.

// linger retains an unwanted key with its actual value if its kind lingers, and reports whether it did.
func (t *Tracker[K, O]) linger(e *entry[K, O], now time.Time) bool {
	d := t.p.Linger(e.key)
	if d <= 0 || e.have == "" {
		t.endLinger(e)
		return false
	}
	if _, waits := t.lingering[e]; !waits {
		t.lingering[e] = now.Add(d)
	}
	e.want = e.have
	return true
}

// endLinger makes a key linger no more, without a change of its desired value.
func (t *Tracker[K, O]) endLinger(e *entry[K, O]) {
	delete(t.lingering, e)
}

// Expire queues the deletion of unused keys whose linger time is over.
func (t *Tracker[K, O]) Expire(now time.Time) {
	for e, due := range t.lingering {
		if due.After(now) {
			continue
		}
		delete(t.lingering, e)
		t.want(e, "")
	}
}

// Lingering iterates over the unused keys that linger, in no order.
func (t *Tracker[K, O]) Lingering() iter.Seq[K] {
	return func(yield func(K) bool) {
		for e := range t.lingering {
			if !yield(e.key) {
				return
			}
		}
	}
}

// Release queues the deletion of a lingering key before its linger time is over. It ignores a key that does not linger.
func (t *Tracker[K, O]) Release(key K) {
	e := t.entries[key]
	if _, waits := t.lingering[e]; waits {
		delete(t.lingering, e)
		t.want(e, "")
	}
}

// NextExpiry returns when the next linger time is over (zero: no key lingers).
func (t *Tracker[K, O]) NextExpiry() (next time.Time) {
	for _, due := range t.lingering {
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}
