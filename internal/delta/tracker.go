package delta

import (
	"iter"
	"time"
)

// Object is a key with the value that an owner wants it to have. Value is never
// empty: "" means absent everywhere in this package.
type Object[K comparable] struct {
	Key   K
	Value string
}

// Diff is one difference between Have (committed or loaded) and Want.
type Diff[K comparable] struct {
	Key        K
	Have, Want string
	// Group is the same for changes that were wanted together, by one owner at one
	// time: they must go in together, or packets would meet half of a change.
	Group uint32
}

// Drift is a key whose actual value is not what we believed; "" is absent.
type Drift[K comparable] struct {
	Key             K
	Believed, Found string
}

// Params describe the keys.
type Params[K comparable] struct {
	// Width is the slot size of a pool key (see align), 0 for plain keys.
	Width func(K) int
	// Rank orders creations upwards and deletions downwards: a
	// key may refer to keys of lower rank only.
	Rank func(K) uint8
	// Linger is how long an unwanted key is kept before it becomes pending.
	Linger func(K) time.Duration
	// Same reports whether what a Comparison found of a key is what is believed of it, where the two are not equal; nil: they
	// must be. It is not asked about pools.
	Same func(believed, found string) bool
	// Inert reports that a key does nothing unless another key leads to it; nil: none is.
	Inert func(K) bool
	// Shared reports that objects of several owners may be this key, or lead to it; nil: none is. See KeepUnseen.
	Shared func(K) bool
	// Part returns the key that another is a part of; nil: none is. See KeepUnseen.
	Part func(K) (whole K, is bool)
	// Sum is what one key with its value adds to the sum of all that is there; nil: there is no sum.
	Sum func(key K, value string) uint64
}

// Tracker is a table of keys with what is wanted (desired), what is there (actual),
// and a queue of those that differ (pending). What is wanted comes from the layers
// above: owners.go, linger.go and hold.go say who wants a key, pool.go how a value
// is laid out.
type Tracker[K comparable, O comparable] struct {
	p       Params[K]
	entries map[K]*entry[K, O]
	queue   []*entry[K, O] // every entry with have != want is here, in the order it became so
	round   uint32         // of the last walk; entries that it met carry the same number
	group   uint32         // of the last Set
	shape   uint64         // counts the keys that came and went
	look    uint16         // of the last Comparison, or of what spoils one
	sum     uint64         // of all that is there

	owners    map[O]*record[K, O]
	before    map[O][]kept[K, O] // see remember
	lingering map[*entry[K, O]]time.Time
	held      map[O][]*entry[K, O]            // what an owner in quarantine keeps
	holders   map[*entry[K, O]]map[O]struct{} // the same by key
	orphans   []*entry[K, O]                  // inert keys that the last Load found and nobody wanted
	keeping   bool                            // see KeepUnseen
	claimed   bool                            // an unseen key has been wanted since the unwanted ones were reviewed
}

type entry[K comparable, O comparable] struct {
	key        K
	want, have string
	first      *record[K, O] // the owner that wanted it first; it may have ceased to
	refs       int32         // how many owners want it
	round      uint32
	group      uint32
	queued     bool
	look       uint16 // the last one that met it
}

// New makes an empty tracker.
func New[K comparable, O comparable](p Params[K]) *Tracker[K, O] {
	return &Tracker[K, O]{
		p: p, entries: map[K]*entry[K, O]{}, owners: map[O]*record[K, O]{}, before: map[O][]kept[K, O]{},
		lingering: map[*entry[K, O]]time.Time{}, held: map[O][]*entry[K, O]{}, holders: map[*entry[K, O]]map[O]struct{}{},
	}
}

// Len is the number of keys known, wanted or there.
func (t *Tracker[K, O]) Len() int { return len(t.entries) }

// Want and Have give the two views of one key; "" is absent.
func (t *Tracker[K, O]) Want(key K) string { return t.peek(key).want }

// Have is what is there, as far as we know.
func (t *Tracker[K, O]) Have(key K) string { return t.peek(key).have }

// Wanted iterates over all wants, in no order. For tests and inspection.
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

// Sum is the sum of all that is there, as far as we know: what another sum of keys and values differs from has other ones
// among them. It counts from 0 at 2^64 again.
func (t *Tracker[K, O]) Sum() uint64 { return t.sum }

// has records what is there now of a key.
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

// forget drops an entry that is neither wanted nor there. A forgotten entry may
// still be queued while a new one lives under its key.
func (t *Tracker[K, O]) forget(e *entry[K, O]) {
	if e.refs == 0 && e.want == "" && e.have == "" && t.entries[e.key] == e {
		delete(t.entries, e.key)
		t.shape++
	}
}
