package delta

import (
	"iter"
	"time"
)

// Object is a key with the value that its owner desires. Value is never empty: ""
// means absent everywhere in this package.
type Object[K comparable] struct {
	Key   K
	Value string
}

// Diff is one pending change: the difference between Have, the actual value (committed
// or loaded), and Want, the desired value.
type Diff[K comparable] struct {
	Key        K
	Have, Want string
	// Group is equal for changes that one Set of one owner requested. They must be
	// applied together, or packets would meet half of a change.
	Group uint32
}

// Drift is a key whose actual value (Found) differs from the one that the tracker
// assumed (Believed); "" is absent.
type Drift[K comparable] struct {
	Key             K
	Believed, Found string
}

// Params describe the keys.
type Params[K comparable] struct {
	// Width returns the slot size of a pool key (see align), 0 for plain keys.
	Width func(K) int
	// Rank orders creations upwards and deletions downwards: a
	// key may refer to keys of lower rank only.
	Rank func(K) uint8
	// Linger returns how long an unwanted key is kept before its deletion is pending.
	Linger func(K) time.Duration
	// Same reports whether the actual value that a Comparison found is equivalent to the assumed one, where the two are not
	// equal; nil: they must be equal. It is not called for pools.
	Same func(believed, found string) bool
	// Inert reports whether a key has no effect unless another key refers to it; nil: no key is inert.
	Inert func(K) bool
	// Shared reports whether objects of several owners may be this key, or refer to it; nil: no key is shared. See KeepUnseen.
	Shared func(K) bool
	// Part returns the key that another key is a part of; nil: no key is a part. See KeepUnseen.
	Part func(K) (whole K, is bool)
	// Sum returns what one key with its value adds to the sum of the actual state; nil: no sum is kept.
	Sum func(key K, value string) uint64
}

// Tracker is a table of keys with their desired value (want) and their actual value
// (have), and a queue of the keys whose two values differ (pending). The layers above
// compute the desired value: owners.go, linger.go and hold.go decide which owner keeps
// a key, pool.go decides the layout of a value.
//
// Example: Set(owner, {k: "a"}) makes the desired value of k "a" while its actual value
// is "" (absent), so Pending returns {Key: k, Have: "", Want: "a"}. After the kernel has
// applied it, Commit makes the actual value "a", and nothing is pending. If another
// program then deletes k, the next ReplaceActual returns the Drift {Key: k, Believed:
// "a", Found: ""}, and the creation of k is pending again.
type Tracker[K comparable, O comparable] struct {
	p       Params[K]
	entries map[K]*entry[K, O]
	queue   []*entry[K, O] // every entry with have != want, in the order in which it became pending
	round   uint32         // number of the last walk; the entries that it visited carry the same number
	group   uint32         // number of the last Set
	shape   uint64         // counts the keys that were added and removed
	look    uint16         // number of the last Comparison, or of the last call that spoils one
	sum     uint64         // of the actual state

	owners    map[O]*record[K, O]
	before    map[O][]kept[K, O] // see remember
	lingering map[*entry[K, O]]time.Time
	held      map[O][]*entry[K, O]            // the keys that an owner in quarantine keeps
	holders   map[*entry[K, O]]map[O]struct{} // the same by key
	orphans   []*entry[K, O]                  // inert keys that the last Load found and no owner wanted
	keeping   bool                            // see KeepUnseen
	claimed   bool                            // an unseen key has been wanted since the unwanted ones were reviewed
}

type entry[K comparable, O comparable] struct {
	key        K
	want, have string
	first      *record[K, O] // the first owner that wanted it; it may have released it since
	refs       int32         // how many owners want it
	round      uint32
	group      uint32
	queued     bool
	look       uint16 // the last Comparison that visited it
}

// New returns an empty tracker.
func New[K comparable, O comparable](p Params[K]) *Tracker[K, O] {
	return &Tracker[K, O]{
		p: p, entries: map[K]*entry[K, O]{}, owners: map[O]*record[K, O]{}, before: map[O][]kept[K, O]{},
		lingering: map[*entry[K, O]]time.Time{}, held: map[O][]*entry[K, O]{}, holders: map[*entry[K, O]]map[O]struct{}{},
	}
}

// Len returns the number of known keys: desired, actual or both.
func (t *Tracker[K, O]) Len() int { return len(t.entries) }

// Want returns the desired value of a key; "" is absent.
func (t *Tracker[K, O]) Want(key K) string { return t.peek(key).want }

// Have returns the actual value of a key as of the last Commit or load; "" is absent.
func (t *Tracker[K, O]) Have(key K) string { return t.peek(key).have }

// Wanted iterates over the desired state, in no order. It is for tests and inspection.
func (t *Tracker[K, O]) Wanted() iter.Seq2[K, string] {
	return func(yield func(K, string) bool) {
		for k, e := range t.entries {
			if e.want != "" && !yield(k, e.want) {
				return
			}
		}
	}
}

func (t *Tracker[K, O]) peek(key K) entry[K, O] {
	if e := t.entries[key]; e != nil {
		return *e
	}
	return entry[K, O]{}
}

func (t *Tracker[K, O]) entry(key K) *entry[K, O] {
	e := t.entries[key]
	if e == nil {
		e = &entry[K, O]{key: key}
		t.entries[key] = e
		t.shape++
	}
	return e
}

// Sum returns the sum of the actual state. If the sum of another set of keys and values differs, the two sets differ.
// The sum wraps at 2^64.
func (t *Tracker[K, O]) Sum() uint64 { return t.sum }

// has updates the actual value of a key.
func (t *Tracker[K, O]) has(e *entry[K, O], value string) {
	if t.p.Sum != nil {
		if e.have != "" {
			t.sum -= t.p.Sum(e.key, e.have)
		}
		if value != "" {
			t.sum += t.p.Sum(e.key, value)
		}
	}
	e.have = value
}

func (t *Tracker[K, O]) want(e *entry[K, O], value string) {
	if w := t.p.Width(e.key); w > 0 && value != "" {
		value = align(e.have, value, w)
	}
	e.want, e.group = value, t.group
	t.enqueue(e)
}

func (t *Tracker[K, O]) enqueue(e *entry[K, O]) {
	if e.have != e.want && !e.queued {
		e.queued = true
		t.queue = append(t.queue, e)
	}
}

// forget drops an entry that is in neither the desired nor the actual state. A
// forgotten entry may still be queued while a new entry exists under its key.
func (t *Tracker[K, O]) forget(e *entry[K, O]) {
	if e.refs == 0 && e.want == "" && e.have == "" && t.entries[e.key] == e {
		delete(t.entries, e.key)
		t.shape++
	}
}
