package delta

import "time"

// The layer of quarantine: an owner whose objects were refused keeps what it has in
// the kernel, the keys included that it had given up, until it is Set again.

// remember keeps what an owner wanted when everything was last in the kernel, for
// Hold, until everything is in the kernel again.
func (t *Tracker[K, O]) remember(owner O, old []*entry[K, O]) {
	if held := t.held[owner]; len(held) > 0 {
		old = held
	}
	if _, known := t.before[owner]; !known && len(old) > 0 {
		t.before[owner] = old
	}
}

// Hold puts an owner aside: what of its objects is in the kernel stays as it is,
// and what is not is wanted no more. A key that another owner wants is that
// owner's.
func (t *Tracker[K, O]) Hold(owner O, now time.Time) {
	r := t.owners[owner]
	if r == nil {
		return
	}
	t.round++
	var keep []*entry[K, O]
	for _, list := range [][]*entry[K, O]{t.before[owner], r.wants} {
		for _, e := range list {
			if e.round == t.round || e.have == "" || t.entries[e.key] != e {
				continue
			}
			e.round = t.round
			if t.holders[e] == nil {
				t.holders[e] = map[O]struct{}{}
			}
			t.holders[e][owner] = struct{}{}
			t.endLinger(e)
			keep = append(keep, e)
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

func (t *Tracker[K, O]) isHeld(e *entry[K, O]) bool {
	return len(t.holders) > 0 && len(t.holders[e]) > 0
}

// overrule ends what owners in quarantine hold of a key that now gets another value.
func (t *Tracker[K, O]) overrule(e *entry[K, O]) {
	if len(t.holders) > 0 && e.want != e.have {
		delete(t.holders, e)
	}
}

// endHold gives up what an owner held.
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
