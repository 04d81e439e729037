package delta

import "slices"

// Pending returns the pending changes in an order in which any prefix that does not end
// within a Group can be applied by itself. Creations come first, from the lowest rank
// up, so that every object comes after the objects that it refers to and publishing
// objects come last. Updates follow, Group by Group, then deletions from the highest
// rank down.
func (t *Tracker[K, O]) Pending() []Diff[K] {
	t.compact()
	out := t.inOrder(t.placeOf)
	first := 0
	for first < len(out) && out[first].Have == "" {
		first++
	}
	last := first
	for last < len(out) && out[last].Want != "" {
		last++
	}
	byGroup := func(a, b Diff[K]) int { return int(int32(a.Group - b.Group)) } // the counter may wrap
	if !slices.IsSortedFunc(out[first:last], byGroup) {
		slices.SortStableFunc(out[first:last], byGroup)
	}
	return out
}

// inOrder returns the queue sorted by the places of its entries. It uses a counting sort:
// ranks are few and small, and the first list of a large cluster has a million keys.
func (t *Tracker[K, O]) inOrder(placeOf func(*entry[K, O]) int) []Diff[K] {
	if len(t.queue) <= fewDiffs {
		return t.fewInOrder(placeOf)
	}
	var places places
	for _, e := range t.queue {
		places.count(placeOf(e))
	}
	out := make([]Diff[K], places.layOut())
	for _, e := range t.queue {
		if at := places.take(placeOf(e)); at >= 0 {
			out[at] = Diff[K]{Key: e.key, Have: e.have, Want: e.want, Group: e.group}
		}
	}
	return out
}

// fewDiffs is the largest number of pending changes that are sorted by insertion. A
// counting sort walks through all places.
const fewDiffs = 16

// fewInOrder is inOrder for at most fewDiffs entries.
func (t *Tracker[K, O]) fewInOrder(placeOf func(*entry[K, O]) int) []Diff[K] {
	out := make([]Diff[K], 0, len(t.queue))
	var at [fewDiffs]int
	for _, e := range t.queue {
		place := placeOf(e)
		if place == leftBehind {
			continue
		}
		out = append(out, Diff[K]{Key: e.key, Have: e.have, Want: e.want, Group: e.group})
		i := len(out) - 1
		for ; i > 0 && at[i-1] > place; i-- {
			out[i], out[i-1] = out[i-1], out[i]
			at[i] = at[i-1]
		}
		at[i] = place
	}
	return out
}

// placeOf returns the place of an entry in the order of Pending.
func (t *Tracker[K, O]) placeOf(e *entry[K, O]) int {
	switch {
	case e.want == "":
		return numPlaces - 1 - int(t.p.Rank(e.key))
	case e.have == "":
		return int(t.p.Rank(e.key))
	}
	return changes
}

// PendingCount returns an upper bound of the number of pending changes, in O(1).
func (t *Tracker[K, O]) PendingCount() int { return len(t.queue) }

// fewOwners is the largest number of owners for which a map is cleared and reused.
const fewOwners = 64

// compact drops the entries that are in sync from the queue.
func (t *Tracker[K, O]) compact() {
	live := t.queue[:0]
	for _, e := range t.queue {
		if e.have == e.want {
			e.queued = false
			continue
		}
		live = append(live, e)
	}
	clear(t.queue[len(live):])
	t.queue = live
	if len(live) > 0 {
		return
	}
	if cap(live) > 1024 {
		t.queue = nil // a full build's queue is not needed again soon
	}
	if len(t.before) > fewOwners { // a cleared map would keep its buckets
		t.before = map[O][]kept[K, O]{}
	}
	clear(t.before)
}
