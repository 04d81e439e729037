package nftables

import (
	"maps"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// write fills the batch and returns the number of operations. The order is valid for
// all references: delete elements; create sets, chains and rules; add elements, those
// that publish Frontends last; then delete the chains and sets that are no longer
// referenced. The elements of the ops in apart share no message with those of other ops.
func (d *Driver) write(ops []dataplane.Op, old *[2]remains, apart map[int]struct{}) (int, error) {
	d.batch.Reset()
	d.batch.Grow(estimate(ops))
	w := &writer{d: d, ops: ops, apart: apart}
	for f := range bothFamilies {
		if !d.plan.concerns(f) {
			continue
		}
		w.f, w.old = f, old[f]
		w.old.chains, w.old.sets = maps.Clone(w.old.chains), maps.Clone(w.old.sets)
		w.roots()
		if d.plan.removed[f] {
			continue
		}
		if !d.plan.fresh[f] {
			w.elements(false)
		}
		w.sets()
		if err := w.chains(); err != nil {
			return 0, err
		}
		w.elements(true)
		if !d.plan.fresh[f] {
			w.deletions()
		}
		old[f].left = w.old.left
	}
	return w.n, nil
}

// estimate returns the approximate size of the ops in a batch, in bytes. Without it the
// buffer would grow by doubling, and copy the megabytes of a full build several times.
func estimate(ops []dataplane.Op) int {
	const perElement, perSlot = 96, 72
	n := 0
	for i := range ops {
		n += perElement
		if def := defOf(ops[i].Key.Kind); def != nil && def.shape == shapePool && ops[i].Have == "" {
			w := def.slotWidth(ops[i].Key.Family)
			n += len(ops[i].Want) / w * (perSlot + 2*w)
		}
	}
	return n
}

// writer writes the ops of one family.
type writer struct {
	d     *Driver
	ops   []dataplane.Op
	f     int
	n     int              // operations written
	old   remains          // the objects that a rebuild keeps; empty otherwise
	apart map[int]struct{} // ops whose elements are written in messages of their own
}

// each calls do for the ops of a kind.
func (w *writer) each(k dataplane.Kind, do func(o *dataplane.Op)) {
	w.eachOf(w.d.plan.of(w.f, k), do)
}

// eachOf calls do for the ops of the listed indexes, and tags the messages of each op.
func (w *writer) eachOf(list []int32, do func(o *dataplane.Op)) {
	for _, i := range list {
		w.d.batch.Tag(int(i))
		_, alone := w.apart[int(i)]
		if alone {
			w.d.batch.EndList()
		}
		do(&w.ops[i])
		if alone {
			w.d.batch.EndList()
		}
	}
}

// roots empties, deletes and creates the table.
func (w *writer) roots() {
	if w.d.plan.rebuild[w.f] && w.old.table {
		w.clear()
	}
	w.each(dataplane.KindRoot, func(o *dataplane.Op) {
		ref := tableRef(o.Key.Family)
		if o.Have != "" && !w.d.plan.rebuild[w.f] {
			w.d.delTable(ref)
		}
		if o.Want != "" && !w.old.table {
			w.d.batch.NewTable(ref, nft.Comment(markText+o.Want))
		}
		w.n++
	})
}

// elements writes the additions in the order of kinds, or the deletions in reverse order.
func (w *writer) elements(add bool) {
	s := step{d: w.d, add: add}
	do := s.op
	for i := firstElement; i < kinds; i++ {
		k := i
		if !add {
			k = kinds - 1 - (i - firstElement)
		}
		if list := w.d.plan.of(w.f, k); len(list) > 0 { // most kinds have none
			w.eachOf(list, do)
		}
	}
	w.n += s.ops
}

// sets creates sets. An op never changes a set, because Load requests a rebuild then.
func (w *writer) sets() {
	w.each(kindSet, func(o *dataplane.Op) {
		def := defNamed(o.Key.ID)
		if o.Want == "" || def == nil && !isCounted(o.Key.ID) {
			return
		}
		w.n++
		if _, there := w.old.sets[o.Key.ID]; there {
			return
		}
		if def == nil {
			w.d.batch.NewSet(countedSpec(o.Key.Family, o.Key.ID))
			return
		}
		w.d.batch.NewSet(w.spec(def, o.Key.ID))
	})
	w.each(kindClients, func(o *dataplane.Op) {
		if o.Want != "" {
			w.n++
			if _, there := w.old.sets[o.Key.ID]; !there {
				newClients(&w.d.batch, o.Key.Family, o.Key.ID)
			}
		}
	})
}

// spec returns the declaration of a set at its current scale.
func (w *writer) spec(def *setDef, name string) nft.SetSpec {
	return def.spec(bothFamilies[w.f], name, w.d.sizes.scale[w.f][def.kind])
}

// sameSet reports whether the actual declaration of a set is the desired one.
func (w *writer) sameSet(def *setDef, row nft.Set) bool {
	spec := w.spec(def, row.Ref.Name)
	return spec.Matches(row)
}
