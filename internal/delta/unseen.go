package delta

import "time"

// The layer of unseen keys: what the kernel held before this process wanted it stays while the inputs
// are known in part only.

// KeepUnseen makes the tracker keep each key that is there and that no owner has wanted since New. A
// shared key that its last owner gives up is kept too: an unseen key may lead to it. A part of a key that an owner
// has wanted is not kept: what the owner does not name is gone. Keys that are not
// shared, and that an owner has wanted, are deleted as ever. It visits every key.
func (t *Tracker[K, O]) KeepUnseen(now time.Time) {
	t.keeping = true
	t.reviewUnwanted(now)
}

// EndKeep deletes what KeepUnseen has kept, or lets it linger. It visits every key.
func (t *Tracker[K, O]) EndKeep(now time.Time) {
	t.keeping = false
	t.reviewUnwanted(now)
}

// reviewUnwanted decides again what becomes of each key that no owner wants.
func (t *Tracker[K, O]) reviewUnwanted(now time.Time) {
	t.claimed = false
	for _, e := range t.entries {
		if e.refs == 0 {
			t.unwanted(e, now)
		}
	}
}

// keep keeps an unwanted key as it is, and reports whether it does.
func (t *Tracker[K, O]) keep(e *entry[K, O]) bool {
	if !t.keeping || e.have == "" || t.isPartOfSeen(e) || !t.isOrphan(e) && (t.p.Shared == nil || !t.p.Shared(e.key)) {
		return false
	}
	t.endLinger(e)
	e.want = e.have
	return true
}

// isPartOfSeen reports whether a key is a part of one that an owner has wanted: what the owner does not name of it is gone.
func (t *Tracker[K, O]) isPartOfSeen(e *entry[K, O]) bool {
	if t.p.Part == nil {
		return false
	}
	whole, is := t.p.Part(e.key)
	w := t.entries[whole]
	return is && w != nil && w.first != nil
}

// AnyUnseen reports whether a key is there that no owner has wanted since New, those apart that
// linger or would. It visits every key.
func (t *Tracker[K, O]) AnyUnseen() bool {
	for _, e := range t.entries {
		if t.isOrphan(e) && t.p.Linger(e.key) <= 0 {
			return true
		}
	}
	return false
}

// Unseen reports whether a key is there that no owner has wanted since New.
func (t *Tracker[K, O]) Unseen(key K) bool {
	e := t.entries[key]
	return e != nil && t.isOrphan(e)
}
