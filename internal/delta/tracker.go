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
	// applied together, or packets would meet half of a change. ReplaceActual puts all
	// pending changes of an owner into one group. The number may wrap.
	Group uint32
}

// Drift is a key whose actual value (Found) differs from the one that the tracker
// assumed (Believed); "" is absent.
type Drift[K comparable] struct {
	Key             K
	Believed, Found string
}

// Params describe the keys. All functions are pure. Width, Rank and Linger are required.
type Params[K comparable] struct {
	// Width returns the slot size of a pool key in bytes (see align), 0 for plain keys.
	Width func(K) int
	// Rank orders creations upwards and deletions downwards: a
	// key may refer to keys of lower rank only.
	Rank func(K) uint8
	// Linger returns how long an unwanted key is kept before its deletion is pending; 0: it is pending at once.
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

// Tracker is a table of keys. An entry has a desired value (want) and an actual value (have); "" is absent. The keys whose
// two values differ are pending, and are in a queue. Set updates the desired state, Commit, CommitAnew and ReplaceActual
// update the actual state, and Pending returns the difference. The layers of doc.go decide which desired value a key has
// that no owner wants any more.
//
// Example: nftables mode, Service shop/web at 10.96.0.10:80 with the endpoints A and B (A is 10.244.1.5:8080, and so on).
// In the kernel are, among others, the chain lb-a-2, the pool "AB" under the key eps 10.96.0.10:80, and the element
// services 10.96.0.10:80 with the value "lb-a-2". Then endpoint C is added:
//
//	Set(shop/web, {chain lb-a-4, eps "ABC", services "lb-a-4"})
//	Pending() = chain lb-a-4: ""       -> rules      creations first, lower ranks before higher ones
//	            eps:          "AB"     -> "ABC"      one Group: the two updates must be
//	            services:     "lb-a-2" -> "lb-a-4"   in one transaction
//
// No owner wants lb-a-2 now. Chains linger, so its deletion is pending only after Expire at the end of its linger time. If
// the kernel rejects the transaction, the caller does not call Commit, and the next Pending returns the same changes. After
// Commit nothing is pending. If another program then deletes the element, the next ReplaceActual returns the Drift
// {services, Believed "lb-a-4", Found ""}, and the creation of the element is pending.
//
// Pools: if D is added and then A is removed, Set requests first "ABCD" and then "BCD", but the second pending change is
// "ABCD" -> "DBC". D moves to the slot of A, so the kernel gets one changed and one deleted element instead of four
// operations (align). Want returns the layout that was chosen, which may differ from the one that Set requested.
//
// Guaranteed: a key stays desired while at least one owner wants it. A pending change stays pending until it is committed or
// requested no more. When everything is committed, the actual values are those that the owners want, pools in any order of
// slots, except for owners in quarantine (Hold).
//
// Not guaranteed: if two owners desire different values of one key, it gets the value of the last Set. A key that
// ReplaceActual finds and that no owner wants is deleted, also if another program created it, unless it lingers, is held or is kept as
// unseen. Intermediate desired states are not remembered.
//
// Costs: Set is proportional to the keys of the owner, Pending to the queue, Expire and NextExpiry to the lingering keys.
// ReplaceActual, Anew, CommitAnew and KeepUnseen visit every key. A Tracker is not safe for concurrent use.
type Tracker[K comparable, O comparable] struct {
	p       Params[K]
	entries map[K]*entry[K, O]
	queue   []*entry[K, O] // every entry with have != want, in the order in which it became pending; others until compact
	round   uint32         // number of the last walk; the entries that it visited carry the same number
	group   uint32         // number of the last Set, or of the last owner that requeue visited
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

// entry is one key with its two values. It exists while the key is desired, actual or owned (see forget).
type entry[K comparable, O comparable] struct {
	key        K
	want, have string
	first      *record[K, O] // the first owner that wanted it; it may have released it since
	refs       int32         // how many owners want it
	round      uint32        // the last walk that visited it; see Tracker.round
	group      uint32        // the Set that last requested its desired value; see Diff.Group
	queued     bool          // it is in Tracker.queue
	look       uint16        // the last Comparison that visited it
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

// peek returns a copy of the entry of a key, the zero entry if there is none.
func (t *Tracker[K, O]) peek(key K) entry[K, O] {
	if e := t.entries[key]; e != nil {
		return *e
	}
	return entry[K, O]{}
}

// entry returns the entry of a key. It creates an empty one if there is none.
func (t *Tracker[K, O]) entry(key K) *entry[K, O] {
	e := t.entries[key]
	if e == nil {
		e = &entry[K, O]{key: key}
		t.entries[key] = e
		t.shape++
	}
	return e
}

// Sum returns the sum of the actual state. If the sum of another set of keys and values differs, the two sets differ. If
// it is equal, they are equal, except with a probability of 2^-64. The sum wraps at 2^64; it is 0 without Params.Sum.
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

// want updates the desired value of a key, and queues the key if the change is pending. A pool is laid out by align.
func (t *Tracker[K, O]) want(e *entry[K, O], value string) {
	if w := t.p.Width(e.key); w > 0 && value != "" {
		value = align(e.have, value, w)
	}
	e.want, e.group = value, t.group
	t.enqueue(e)
}

// enqueue puts an entry whose values differ at the end of the queue, at most once. An entry that is in sync again stays in
// the queue until compact.
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
