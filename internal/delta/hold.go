package delta

import "time"

// The quarantine layer: an owner whose objects the kernel rejected keeps its actual
// state, including keys that it had released, until the next Set of that owner.
//
// Example: the key "services 10.96.0.10:80" is in sync, then Service shop/web changes
// its port to 81. Set(shop/web, {services 10.96.0.10:81}) makes the creation of the new
// key and the deletion of the old one pending, and remembers the old one (before). The
// kernel rejects the new key. Hold(shop/web) makes the actual values desired: port 80
// stays, and nothing of shop/web is pending. The next Set(shop/web, ...) ends the hold
// and makes both changes pending again.
//
// If no earlier desired state of the owner is remembered, an earlier process may have
// written its objects, and it is unknown which they are. Then the owner also holds all
// inert keys that no owner has wanted (orphans).

// kept is a key with its actual value at the time when its owner's desired state changed.
type kept[K comparable, O comparable] struct {
	*entry[K, O]
	value string
}

// remember stores, for Hold, the desired state of an owner at the time of the last
// complete sync, and the values written for the owner since. The record is kept until
// nothing is pending again.
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
		if _, holds := t.holders[e][owner]; holds { // no other owner has overruled it
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

// refresh updates the remembered values of the entries whose actual value is now the desired one.
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

// Hold quarantines an owner: its objects that are in the kernel keep their actual
// values, and its other objects are no longer desired. A key that another owner also
// wants follows that owner. A key that another owner has just released to this one is
// not held, because its actual value may refer to keys that only the other owner wanted.
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
	if len(t.before[owner]) == 0 { // objects from before the restart may refer to any of these
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

// isOrphan reports whether a key is in the kernel and no owner has wanted it since New.
func (t *Tracker[K, O]) isOrphan(e *entry[K, O]) bool {
	return e.refs == 0 && e.first == nil && e.have != ""
}

// givenUpByOthers returns the keys that an owner wants, that belonged to another owner at
// the last complete sync, and that never belonged to this owner.
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
	if doubtful == 0 { // the usual case: the other owners need not be visited
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

// addHolder makes an owner in quarantine keep a key, which then does not linger.
func (t *Tracker[K, O]) addHolder(e *entry[K, O], owner O) {
	if t.holders[e] == nil {
		t.holders[e] = map[O]struct{}{}
	}
	t.holders[e][owner] = struct{}{}
	t.endLinger(e)
}

// Spare retains keys that no owner wants and that cannot be deleted, because a held
// object refers to them. (Objects from before the restart are held without knowing
// their references.) The keys stay until no owner is in quarantine. Spare reports
// whether it retained any.
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

// LetGo abandons keys that no owner wants and that are held but cannot be restored, or, in
// a rebuild, that cannot be rewritten. It reports whether there were any.
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

// isHeld reports whether an owner in quarantine keeps a key.
func (t *Tracker[K, O]) isHeld(e *entry[K, O]) bool {
	return len(t.holders[e]) > 0
}

// overrule ends the hold of all quarantined owners on a key whose desired value now differs from the actual one.
func (t *Tracker[K, O]) overrule(e *entry[K, O]) {
	if e.want != e.have {
		delete(t.holders, e)
	}
}

// endHold releases the keys that an owner held.
func (t *Tracker[K, O]) endHold(owner O, now time.Time) {
	list := t.held[owner]
	delete(t.held, owner)
	for _, e := range list {
		delete(t.holders[e], owner) // unless an owner has overruled it
		if len(t.holders[e]) == 0 {
			delete(t.holders, e)
			if e.refs == 0 {
				t.unwanted(e, now)
			}
		}
	}
}
