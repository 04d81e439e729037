package iptables

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// end reports what was found, after the whole table has been read.
func (l *loader) end() {
	l.finish()
	for _, id := range slices.Sorted(maps.Keys(l.jumps)) {
		l.put(kindJump, id, present)
		for n := l.jumps[id]; n > 1; n-- { // duplicates have no effect and are removed
			l.put(kindJump, id+sep+itoa(n), present)
		}
	}
	for _, one := range l.found {
		l.tell(one)
		delete(l.declared, one.chain())
	}
	for _, name := range slices.Sorted(maps.Keys(l.declared)) {
		l.ref.chain = name
		l.tellEmpty(kindOfChain(l.ref.table, name))
	}
}

// tell emits a chain. A shared chain that is out of order, or has duplicate lines, is reported
// as such, so that it is rewritten.
func (l *loader) tell(one *seen) {
	if l.there != nil {
		l.ref.chain = one.chain()
		l.mirror(one)
	}
	if one.kind != kindLine && one.kind != kindBucket {
		value, whole := l.texts[one.chain()]
		if !whole {
			value = one.digest
		}
		l.put(one.kind, one.id, value)
		return
	}
	for _, id := range one.ids {
		l.put(kindLine, id, present)
	}
	switch {
	case !one.tidy:
		l.put(kindBucket, one.id, "out of order")
	case one.kind == kindBucket:
		l.put(kindBucket, one.id, present)
	}
}

// mirror records the actual state of a chain in the mirror.
func (l *loader) mirror(one *seen) {
	var lines []string
	if !l.digests && one.ids != nil {
		lines = one.lines()
	}
	l.there.set(l.ref, lines, one.sum, one.rules)
}

// leads reports whether a line jumps to the current bucket.
func (l *loader) leads() bool {
	if l.led == nil {
		l.led = map[string]struct{}{}
		for _, one := range l.found {
			for _, id := range one.ids {
				l.led[bucketTarget(l.ref.table, id[len(one.id)+len(sep):])] = struct{}{}
			}
		}
	}
	_, leads := l.led[l.ref.chain]
	return leads
}

// tellEmpty emits a chain without rules.
func (l *loader) tellEmpty(kind dataplane.Kind) {
	if l.there != nil {
		l.there.set(l.ref, nil, sumOf(nil), 0)
	}
	switch {
	case kind == kindBucket:
		l.put(kindBucket, l.ref.id(), present)
	case kind != kindLine:
		l.put(kind, l.ref.id(), emptyBody)
	case !l.leads() && (l.still == nil || l.still()):
		l.put(kindBucket, l.ref.id(), "empty")
	}
}
