package delta

import "time"

// The layer of unseen keys: objects that the kernel held before this process wanted them stay while the
// inputs are only partly synced.

// KeepUnseen makes the tracker keep each key that is in the kernel and that no owner has wanted since New. A
// shared key that its last owner releases is kept too, because an unseen key may refer to it. A part of a key that an
// owner has wanted is not kept: a part that the owner does not list has been removed. Keys that are not
// shared, and that an owner has wanted, are deleted as usual. KeepUnseen visits every key.
func (t *Tracker[K, O]) KeepUnseen(now time.Time) {
	t.keeping = true
	t.reviewUnwanted(now)
}

// EndKeep deletes the keys that KeepUnseen has kept, or makes them linger. It visits every key.
func (t *Tracker[K, O]) EndKeep(now time.Time) {
	t.keeping = false
	t.reviewUnwanted(now)
}

// reviewUnwanted updates the desired value of each key that no owner wants.
func (t *Tracker[K, O]) reviewUnwanted(now time.Time) {
	t.claimed = false
	for _, e := range t.entries {
		if e.refs == 0 {
			t.unwanted(e, now)
		}
	}
}

// keep retains an unwanted key with its actual value if KeepUnseen requires it, and reports whether it did.
func (t *Tracker[K, O]) keep(e *entry[K, O]) bool {
	if !t.keeping || e.have == "" || t.isPartOfSeen(e) || !t.isOrphan(e) && (t.p.Shared == nil || !t.p.Shared(e.key)) {
		return false
	}
	t.endLinger(e)
	e.want = e.have
	return true
}

// isPartOfSeen reports whether a key is a part of one that an owner has wanted. A part that the owner does not list has
// been removed.
func (t *Tracker[K, O]) isPartOfSeen(e *entry[K, O]) bool {
	if t.p.Part == nil {
		return false
	}
	whole, is := t.p.Part(e.key)
	w := t.entries[whole]
	return is && w != nil && w.first != nil
}

// AnyUnseen reports whether the kernel holds a key that no owner has wanted since New, except keys of
// a kind that lingers. It visits every key.
func (t *Tracker[K, O]) AnyUnseen() bool {
	for _, e := range t.entries {
		if t.isOrphan(e) && t.p.Linger(e.key) <= 0 {
			return true
		}
	}
	return false
}

// Unseen reports whether the kernel holds the key and no owner has wanted it since New.
func (t *Tracker[K, O]) Unseen(key K) bool {
	e := t.entries[key]
	return e != nil && t.isOrphan(e)
}
