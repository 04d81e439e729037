package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// keepBatch is how much memory the batch buffer keeps between two Applies.
const keepBatch = 1 << 20

// Apply implements dataplane.Driver: one transaction, and if a Frontend with
// affinity lost an endpoint, the sweep of what clients remember.
func (d *Driver) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if len(b.Ops) == 0 {
		return dataplane.Applied{}, nil
	}
	if d.seen.knows() == 0 {
		g, err := d.k.Generation(ctx)
		if err != nil {
			return dataplane.Applied{}, fmt.Errorf("apply: %w", err)
		}
		d.seen.compared(g)
	}
	if d.unsure {
		return dataplane.Applied{}, fmt.Errorf("apply: a sweep is owed, and a Load does it: %w", dataplane.ErrConflict)
	}
	d.perhaps = nil // or a Load would have come first
	d.plan.sort(b)
	for f := range bothFamilies {
		if d.plan.rebuild[f] {
			d.room.choose(f, &d.plan, b.Ops)
		}
	}
	n, err := d.write(b.Ops)
	if err != nil {
		return dataplane.Applied{}, err
	}
	if err := d.commit(ctx); err != nil {
		err = d.explain(err, b.Ops)
		if !dataplane.NothingDone(err) {
			d.perhaps = slices.Clone(b.Ops)
		}
		return dataplane.Applied{}, err
	}
	d.room.settled = true
	if err := d.forget(ctx, b.Ops); err != nil {
		return dataplane.Applied{}, fmt.Errorf("applied, but: %w", err)
	}
	return dataplane.Applied{Operations: n}, nil
}

// plan is the order in which a batch is written: by family, then by kind.
type plan struct {
	order   []int32
	byKind  [2][kinds + 1]int32 // where in order the ops of a kind begin
	rebuild [2]bool             // the table is made (anew): nothing that was there counts
	anew    [2]bool             // the table is deleted first, if there is one
	removed [2]bool             // the table goes, with all that is in it
}

func famIndex(f model.Family) int {
	if f == model.IPv6 {
		return 1
	}
	return 0
}

var bothFamilies = [2]model.Family{model.IPv4, model.IPv6}

// sort counts ops into buckets; inside one they keep their order.
func (p *plan) sort(b dataplane.Batch) {
	ops := b.Ops
	*p = plan{order: slices.Grow(p.order[:0], len(ops))[:len(ops)]}
	for _, f := range b.Rebuild {
		p.anew[famIndex(f)] = true
	}
	var count [2][kinds]int32
	for i := range ops {
		o := &ops[i]
		f := famIndex(o.Key.Family)
		count[f][o.Key.Kind]++
		if o.Key.Kind == dataplane.KindRoot {
			p.rebuild[f], p.removed[f] = o.Want != "", o.Want == ""
		}
	}
	at := int32(0)
	for f := range count {
		for k := range count[f] {
			p.byKind[f][k] = at
			at += count[f][k]
		}
		p.byKind[f][kinds] = at
	}
	fill := p.byKind
	for i := range ops {
		slot := &fill[famIndex(ops[i].Key.Family)][ops[i].Key.Kind]
		p.order[*slot] = int32(i)
		*slot++
	}
	for f := range bothFamilies {
		p.byShard(f, ops)
	}
}

// byShard puts ops on endpoints of one shard together: elements of one set that
// follow each other share a message.
func (p *plan) byShard(f int, ops []dataplane.Op) {
	list := p.of(f, kindEndpoints)
	if len(list) < 2 {
		return
	}
	var at [shards + 1]int
	for _, i := range list {
		at[shardOf(ops[i].Key.ID)+1]++
	}
	for n := range shards {
		at[n+1] += at[n]
	}
	out := make([]int32, len(list))
	for _, i := range list {
		n := shardOf(ops[i].Key.ID)
		out[at[n]] = i
		at[n]++
	}
	copy(list, out)
}

// of gives the indexes of the ops of a kind.
func (p *plan) of(f int, k dataplane.Kind) []int32 { return p.order[p.byKind[f][k]:p.byKind[f][k+1]] }

// write fills the batch in the one order that needs no thought about references:
// take elements away; make sets, chains, rules; add elements, those that publish
// last; then delete chains and sets that nothing leads to any more.
func (d *Driver) write(ops []dataplane.Op) (int, error) {
	d.batch.Reset()
	d.batch.Grow(estimate(ops))
	n := 0
	for f := range bothFamilies {
		w := writer{d: d, ops: ops, f: f, n: &n}
		w.roots()
		if d.plan.removed[f] {
			continue
		}
		if !d.plan.rebuild[f] {
			w.elements(false)
		}
		w.sets()
		if err := w.chains(); err != nil {
			return 0, err
		}
		w.elements(true)
		if !d.plan.rebuild[f] {
			w.deletions()
		}
	}
	return n, nil
}

// estimate is about how many bytes the ops make: growing by doubling would copy a
// full build's megabytes several times.
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
	d   *Driver
	ops []dataplane.Op
	f   int
	n   *int
}

func (w *writer) each(k dataplane.Kind, do func(o *dataplane.Op)) {
	for _, i := range w.d.plan.of(w.f, k) {
		w.d.batch.Tag(int(i))
		do(&w.ops[i])
	}
}

func (w *writer) roots() {
	w.each(dataplane.KindRoot, func(o *dataplane.Op) {
		ref := tableRef(o.Key.Family)
		switch {
		case w.d.plan.anew[w.f]: // to make it first costs nothing if it is there, and else the deletion would fail
			w.d.batch.NewTable(ref, nil)
			w.d.batch.DelTable(ref)
		case o.Have != "":
			w.d.batch.DelTable(ref)
		}
		if o.Want != "" {
			w.d.batch.NewTable(ref, nft.Comment(markText+o.Want))
		}
		*w.n++
	})
}

func (w *writer) elements(add bool) {
	s := step{d: w.d, add: add}
	for i := firstElement; i < kinds; i++ {
		k := i
		if !add {
			k = kinds - 1 - (i - firstElement)
		}
		w.each(k, func(o *dataplane.Op) {
			if w.d.plan.rebuild[w.f] && o.Have != "" {
				fresh := *o
				fresh.Have = ""
				o = &fresh
			}
			s.op(o)
		})
	}
	*w.n += s.ops
}

// sets: a changed set is never asked for, because Load asks for a rebuild then.
func (w *writer) sets() {
	w.each(kindSet, func(o *dataplane.Op) {
		if def := defNamed(o.Key.ID); def != nil && o.Want != "" {
			w.d.batch.NewSet(def.spec(o.Key.Family, o.Key.ID, w.d.room.scale[w.f][def.kind]))
			*w.n++
		}
	})
}

// chains makes all chains before any rule, since rules lead to chains.
func (w *writer) chains() error {
	p := &w.d.plan
	if p.byKind[w.f][kindLeafChain] == p.byKind[w.f][kindBaseChain+1] {
		return nil
	}
	hooks := fixedHooks()
	var missing error
	for k := kindLeafChain; k <= kindBaseChain; k++ {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				return
			}
			*w.n++
			if ref := tableRef(o.Key.Family).Chain(o.Key.ID); o.Have == "" || w.d.plan.rebuild[w.f] {
				w.d.batch.NewChain(nft.ChainSpec{Ref: ref, Hook: hooks[o.Key.ID]})
			} else {
				w.d.batch.FlushChain(ref)
			}
		})
	}
	for k := kindLeafChain; k <= kindBaseChain; k++ {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				return
			}
			rules, known := w.d.chains.rules[o.Want]
			if !known {
				missing = &dataplane.InvalidError{Keys: []dataplane.Key{o.Key}, Err: errors.New("no rules of this digest were rendered")}
				return
			}
			for _, r := range rules() {
				w.d.batch.NewRule(nft.RuleSpec{Chain: tableRef(o.Key.Family).Chain(o.Key.ID), Exprs: r, UserData: tag(r)})
			}
		})
	}
	return missing
}

// deletions empties chains first, for their rules may lead to one another and to
// sets; then sets, whose elements may lead to chains; then the chains.
func (w *writer) deletions() {
	w.goneChains(w.d.batch.FlushChain)
	w.each(kindSet, func(o *dataplane.Op) {
		if o.Want == "" {
			w.d.batch.DelSet(tableRef(o.Key.Family).Set(o.Key.ID))
			*w.n++
		}
	})
	w.goneChains(func(c nft.ChainRef) {
		w.d.batch.DelChain(c)
		*w.n++
	})
}

func (w *writer) goneChains(do func(nft.ChainRef)) {
	for k := kindBaseChain; k >= kindLeafChain; k-- {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				do(tableRef(o.Key.Family).Chain(o.Key.ID))
			}
		})
	}
}

// explain turns what the kernel said into the error classes of the contract.
func (d *Driver) explain(err error, ops []dataplane.Op) error {
	var refused *nft.BatchError
	if full := d.room.overflow(err, ops); full != nil {
		return fmt.Errorf("apply: %w: %w", full, err)
	}
	switch {
	case errors.Is(err, nft.ErrGeneration):
		return fmt.Errorf("apply: %w", dataplane.ErrConflict)
	case !errors.As(err, &refused):
		return fmt.Errorf("apply %d differences: %w", len(ops), err)
	case slices.Contains([]unix.Errno{unix.EPERM, unix.EOPNOTSUPP, unix.EACCES}, refused.Errno):
		return fmt.Errorf("apply: %w: %w", dataplane.ErrUnsupported, err)
	case slices.Contains([]unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR, unix.EBUSY}, refused.Errno) || len(refused.Errors) == 0:
		return fmt.Errorf("apply %d differences: %w", len(ops), err)
	}
	invalid := &dataplane.InvalidError{Err: err}
	for _, e := range refused.Errors {
		if e.Errno == unix.ENOENT && e.Kind == nft.OpDelElement {
			// Nobody wrote since we looked, so what we believe is wrong: read it again.
			return fmt.Errorf("apply: %w: %w", dataplane.ErrConflict, err)
		}
		// A message of many elements, of which the kernel did not say which: better
		// name none, so that the engine halves the batch, than blame them all.
		if len(e.Tags) == 1 && e.Tags[0] >= 0 && e.Tags[0] < len(ops) {
			invalid.Keys = append(invalid.Keys, ops[e.Tags[0]].Key)
		}
	}
	return invalid
}
