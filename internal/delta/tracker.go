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
}

// Tracker holds wants of owners O over keys K, and what is there.
type Tracker[K comparable, O comparable] struct {
	p         Params[K]
	entries   map[K]*entry[K]
	owners    map[O][]*entry[K]
	queue     []*entry[K] // every entry with have != want is here, in the order it became so
	lingering map[*entry[K]]time.Time
	epoch     uint32 // of the last ReplaceActual
}

type entry[K comparable] struct {
	key        K
	want, have string
	refs       int32
	epoch      uint32
	queued     bool
}

// New makes an empty tracker.
func New[K comparable, O comparable](p Params[K]) *Tracker[K, O] {
	return &Tracker[K, O]{
		p: p, entries: map[K]*entry[K]{}, owners: map[O][]*entry[K]{},
		lingering: map[*entry[K]]time.Time{},
	}
}

// Set makes objs all that owner wants, replacing what it wanted before. Cost is
// proportional to the owner's objects. now is used for Linger only.
//
// Two owners that want one key must want the same value; if they do not, the
// last call wins (policy settles such claims before they come here).
func (t *Tracker[K, O]) Set(owner O, objs []Object[K], now time.Time) {
	before := t.owners[owner]
	var after []*entry[K]
	if len(objs) > 0 {
		after = make([]*entry[K], 0, len(objs))
	}
	for _, o := range objs {
		e := t.entry(o.Key)
		e.refs++
		if len(t.lingering) > 0 {
			delete(t.lingering, e)
		}
		t.want(e, o.Value)
		after = append(after, e)
	}
	for _, e := range before {
		t.release(e, now)
	}
	if len(after) == 0 {
		delete(t.owners, owner)
		return
	}
	t.owners[owner] = after
}

// Hold freezes what only this owner wants at what is there now, until its next
// Set: a quarantined Service keeps its last good state, and a new one none.
func (t *Tracker[K, O]) Hold(owner O) {
	for _, e := range t.owners[owner] {
		if e.refs == 1 {
			e.want = e.have
		}
	}
}

// HoldKey freezes one key, whoever wants it, at what is there now, until the next
// Set of one that wants it.
func (t *Tracker[K, O]) HoldKey(key K) {
	if e := t.entries[key]; e != nil {
		e.want = e.have
	}
}

// Owners calls yield for each owner that wants key. It looks at all owners: for
// error paths only.
func (t *Tracker[K, O]) Owners(key K) iter.Seq[O] {
	return func(yield func(O) bool) {
		for o, list := range t.owners {
			for _, e := range list {
				if e.key == key {
					if !yield(o) {
						return
					}
					break
				}
			}
		}
	}
}

// Has tells whether the owner wants anything.
func (t *Tracker[K, O]) Has(owner O) bool { return len(t.owners[owner]) > 0 }

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

func (t *Tracker[K, O]) peek(key K) entry[K] {
	if e := t.entries[key]; e != nil {
		return *e
	}
	return entry[K]{}
}

func (t *Tracker[K, O]) entry(key K) *entry[K] {
	e := t.entries[key]
	if e == nil {
		e = &entry[K]{key: key}
		t.entries[key] = e
	}
	return e
}

func (t *Tracker[K, O]) want(e *entry[K], value string) {
	if w := t.p.Width(e.key); w > 0 {
		value = align(e.have, value, w)
	}
	e.want = value
	t.enqueue(e)
}

func (t *Tracker[K, O]) release(e *entry[K], now time.Time) {
	e.refs--
	if e.refs > 0 {
		return
	}
	if d := t.p.Linger(e.key); d > 0 && e.have != "" {
		t.lingering[e] = now.Add(d)
		return
	}
	e.want = ""
	t.enqueue(e)
	t.forget(e)
}

func (t *Tracker[K, O]) enqueue(e *entry[K]) {
	if e.have != e.want && !e.queued {
		e.queued = true
		t.queue = append(t.queue, e)
	}
}

// forget drops an entry that is neither wanted nor there. A forgotten entry may
// still be queued while a new one lives under its key.
func (t *Tracker[K, O]) forget(e *entry[K]) {
	if e.refs == 0 && e.want == "" && e.have == "" && t.entries[e.key] == e {
		delete(t.entries, e.key)
	}
}
