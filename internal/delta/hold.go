package delta

import "time"

// The layer of quarantine: an owner whose objects were refused keeps what it has in
// the kernel, the keys included that it had given up, until it is Set again.

// kept is a key as it was in the kernel when its owner wanted something else.
type kept[K comparable, O comparable] struct {
	*entry[K, O]
	value string
}

// remember keeps, for Hold, what an owner wanted when everything was last in the
// kernel, and what has come into the kernel for it since, until everything is in the
// kernel again.
func (t *Tracker[K, O]) remember(owner O, old []*entry[K, O]) {
	known := t.before[owner]
	first := len(known) == 0
	if first {
		known = make([]kept[K, O], 0, len(old)+len(t.held[owner]))
	} else {
		t.refresh(known, old)
	}
	t.round++
	for i := range known {
		known[i].round = t.round
	}
	add := func(e *entry[K, O], value string) {
		if e.round != t.round {
			e.round = t.round
			known = append(known, kept[K, O]{e, value})
		}
	}
	for _, e := range t.held[owner] {
		if _, holds := t.holders[e][owner]; holds { // nobody has overruled it
			add(e, e.want)
		}
	}
	for _, e := range old {
		if first || e.have == e.want {
			add(e, e.have)
		}
	}
	if len(known) > 0 {
		t.before[owner] = known
	}
}

// refresh takes the values of those that have come into the kernel as wanted.
func (t *Tracker[K, O]) refresh(known []kept[K, O], old []*entry[K, O]) {
	t.round++
	for _, e := range old {
		e.round = t.round
	}
	for i := range known {
		if e := known[i].entry; e.round == t.round && e.have == e.want {
			known[i].value = e.have
		}
	}
}

// Hold puts an owner aside: what of its objects is in the kernel stays as it is,
// and what is not is wanted no more. A key that another owner wants is that owner's,
// and a key that another has just given up to it goes: its value may lead to what
// only the other wanted.
func (t *Tracker[K, O]) Hold(owner O, now time.Time) {
	r := t.owners[owner]
	if r == nil {
		return
	}
	foreign := t.givenUpByOthers(owner)
	t.round++
	var keep []*entry[K, O]
	hold := func(e *entry[K, O]) {
		if e.round != t.round && e.have != "" && t.entries[e.key] == e {
			e.round = t.round
			t.addHolder(e, owner)
			keep = append(keep, e)
		}
	}
	for _, b := range t.before[owner] {
		if b.have == b.value {
			hold(b.entry)
		}
	}
	for _, e := range r.wants {
		if _, others := foreign[e]; !others {
			hold(e)
		}
	}
	if len(t.before[owner]) == 0 { // what it had before we were started may lead to any of these
		for _, e := range t.orphans {
			if t.isOrphan(e) {
				hold(e)
			}
		}
	}
	delete(t.before, owner)
	delete(t.owners, owner)
	t.held[owner] = keep
	for _, e := range r.wants {
		t.release(e, now)
	}
	for _, e := range keep {
		if e.refs == 0 {
			e.want = e.have
			continue
		}
		t.overrule(e)
	}
}

// isOrphan reports whether a key is there that nobody has wanted since we were started.
func (t *Tracker[K, O]) isOrphan(e *entry[K, O]) bool {
	return e.refs == 0 && e.first == nil && e.have != ""
}

// givenUpByOthers gives, of what an owner wants, the keys that were another's when
// everything was last in the kernel, and were never its own.
func (t *Tracker[K, O]) givenUpByOthers(owner O) map[*entry[K, O]]struct{} {
	out := map[*entry[K, O]]struct{}{}
	t.round++
	mine := t.round
	for _, b := range t.before[owner] {
		b.round = mine
	}
	t.round++
	doubtful := 0
	for _, e := range t.owners[owner].wants {
		if e.round != mine && e.have != "" && e.have != e.want {
			e.round = t.round
			doubtful++
		}
	}
	if doubtful == 0 { // as nearly always: all others need not be looked at
		return out
	}
	note := func(e *entry[K, O]) {
		if e.round == t.round {
			out[e] = struct{}{}
		}
	}
	for _, list := range t.before {
		for _, b := range list {
			note(b.entry)
		}
	}
	for _, list := range t.held {
		for _, e := range list {
			note(e)
		}
	}
	return out
}

func (t *Tracker[K, O]) addHolder(e *entry[K, O], owner O) {
	if t.holders[e] == nil {
		t.holders[e] = map[O]struct{}{}
	}
	t.holders[e][owner] = struct{}{}
	t.endLinger(e)
}

// Spare keeps keys that nobody wants and that cannot be deleted, because something
// that is held leads to them (what was there before we were started is held without
// knowing what it leads to). They stay until no owner is in quarantine. It tells
// whether there were any.
func (t *Tracker[K, O]) Spare(keys []K) (any bool) {
	for _, k := range keys {
		e := t.entries[k]
		if len(t.held) == 0 || e == nil || e.refs > 0 || e.want != "" || e.have == "" {
			continue
		}
		for owner, list := range t.held {
			t.addHolder(e, owner)
			t.held[owner] = append(list, e)
		}
		e.want, any = e.have, true
	}
	return any
}

// LetGo returns up keys that nobody wants and that are held but cannot be put back, or, in
// a rebuild, that cannot be written anew. It tells whether there were any.
func (t *Tracker[K, O]) LetGo(keys []K, anew bool, now time.Time) (any bool) {
	for _, k := range keys {
		if e := t.entries[k]; e != nil && e.refs == 0 && (anew || e.have != e.want) && t.isHeld(e) {
			delete(t.holders, e)
			t.unwanted(e, now)
			any = true
		}
	}
	return any
}

func (t *Tracker[K, O]) isHeld(e *entry[K, O]) bool {
	return len(t.holders[e]) > 0
}

// overrule ends what owners in quarantine hold of a key that now gets another value.
func (t *Tracker[K, O]) overrule(e *entry[K, O]) {
	if e.want != e.have {
		delete(t.holders, e)
	}
}

// endHold returns up what an owner held.
func (t *Tracker[K, O]) endHold(owner O, now time.Time) {
	list := t.held[owner]
	delete(t.held, owner)
	for _, e := range list {
		delete(t.holders[e], owner) // unless somebody has overruled it
		if len(t.holders[e]) == 0 {
			delete(t.holders, e)
			if e.refs == 0 {
				t.unwanted(e, now)
			}
		}
	}
}
