package offload

import (
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// apply writes the operations and returns the number of operations done. All operations but those of devices are one transaction.
func (s *side) apply(ctx context.Context, ops []dataplane.Op, rebuild []model.Family) int {
	w := writer{s: s}
	s.renewed = [2][]string{}
	for i, f := range families() {
		w.f, w.i, w.ops = f, i, w.ops[:0]
		for _, op := range ops {
			if op.Key.Family == f {
				w.ops = append(w.ops, op)
			}
		}
		if anew := slices.Contains(rebuild, f); anew || len(w.ops) > 0 {
			w.family(anew)
		}
	}
	if w.batch.Len() > 0 {
		if err := s.commit(ctx, &w.batch); err != nil {
			s.fail("write", err)
			return 0
		}
		s.well()
	}
	return w.n + s.applyDevices(ctx, ops)
}

// commit writes one transaction. With a ledger of this package's own the commit is unconditional (it does not check the
// generation): the wrapped driver may run programs that write at the same time, and each operation here is either correct in
// any actual state or rejected by the kernel.
func (s *side) commit(ctx context.Context, b *nft.Batch) error {
	g, err := s.send(ctx, b)
	if err == nil && s.p.Wrote != nil {
		s.p.Wrote(g)
	}
	return err
}

func (s *side) send(ctx context.Context, b *nft.Batch) (nft.Generation, error) {
	if !s.own {
		return s.seen.Commit(ctx, s.p.Kernel, b)
	}
	g, err := s.p.Kernel.Commit(ctx, b)
	if err == nil {
		s.seen.Account(g)
	}
	return g, err
}

// writer translates the operations of one family into a batch.
type writer struct {
	s     *side
	f     model.Family
	i     int // index of f
	ops   []dataplane.Op
	batch nft.Batch
	n     int
}

// family writes the operations of one family; anew: the table is deleted first.
func (w *writer) family(anew bool) {
	if at := slices.IndexFunc(w.ops, func(op dataplane.Op) bool { return op.Key.Kind == kindTable }); at >= 0 {
		anew = anew || w.ops[at].Have != "" // another layout, or the table is not desired any more
	}
	if anew && (w.s.book.table[w.i] || len(w.ops) > 0) {
		w.batch.NewTable(tableRef(w.f), nil)
		w.batch.DelTable(tableRef(w.f))
		w.s.book.forget(w.i, w.f)
		w.n++
	}
	w.each(kindTable, true, func(dataplane.Op) {
		w.batch.NewTable(tableRef(w.f), nft.Comment(layout))
		w.s.book.table[w.i] = true
	})
	if anew && !slices.ContainsFunc(w.ops, func(op dataplane.Op) bool { return op.Key.Kind == kindTable && op.Want != "" }) {
		return // the table is deleted with its contents and not rebuilt
	}
	w.each(kindFlowtable, true, func(dataplane.Op) { w.newFlowtable() })
	w.each(kindChain, true, func(op dataplane.Op) {
		w.batch.NewChain(chainSpec(w.f, op.Key.ID))
		w.s.book.chains[w.i][op.Key.ID] = true
	})
	w.each(kindSet, true, func(op dataplane.Op) {
		if spec, ok := setSpec(w.f, op.Key.ID); ok {
			w.batch.NewSet(spec)
		}
	})
	for _, comes := range [...]bool{false, true} {
		w.each(kindExcluded, comes, w.setExcluded)
	}
	w.rules()
	w.each(kindMember, false, w.delMember)
	w.each(kindMember, true, w.addMember)
	w.each(kindSet, false, func(op dataplane.Op) { w.batch.DelSet(tableRef(w.f).Set(op.Key.ID)) })
	w.each(kindChain, false, func(op dataplane.Op) {
		w.batch.DelChain(tableRef(w.f).Chain(op.Key.ID))
		delete(w.s.book.chains[w.i], op.Key.ID)
	})
	w.each(kindFlowtable, false, func(dataplane.Op) { w.batch.DelFlowtable(flowRef(w.f)) })
}

func (w *writer) newFlowtable() {
	w.batch.NewFlowtable(nft.Flowtable{Ref: flowRef(w.f), Counter: true})
	w.s.book.flowtable[w.i], w.s.book.devices[w.i] = true, nil
}

func chainSpec(f model.Family, name string) nft.ChainSpec {
	c := nft.ChainSpec{Ref: tableRef(f).Chain(name)}
	if name == chainName {
		c.Hook = hook()
	}
	return c
}

func hook() *nft.Hook {
	return &nft.Hook{Type: "filter", Num: nft.HookForward, Priority: behindFilter, Policy: nft.PolicyAccept}
}

// each calls do for the operations of a kind that create or update (comes), or for those that delete.
func (w *writer) each(k dataplane.Kind, comes bool, do func(dataplane.Op)) {
	for _, op := range w.ops {
		if op.Key.Kind == k && (op.Want != "") == comes {
			do(op)
			w.n++
		}
	}
}

// rules rewrites all rules if one changes; there are only a few for each threshold in use. If the excluded addresses or the MTU of
// a device change, it rebuilds the flowtable too: the kernel removes all connections from it, and those that are still eligible
// return with their next packet.
func (w *writer) rules() {
	there, changed := w.s.book.rulesOf[w.i], false
	for _, comes := range [...]bool{false, true} {
		w.each(kindRule, comes, func(op dataplane.Op) {
			changed = true
			delete(there, op.Key.ID)
			if comes {
				there[op.Key.ID] = true
			}
		})
	}
	evict := w.s.book.flowtable[w.i] && slices.ContainsFunc(w.ops, func(op dataplane.Op) bool { return op.Key.Kind == kindExcluded || isResized(op) })
	if !changed && !evict {
		return
	}
	for _, chain := range slices.Sorted(maps.Keys(w.s.book.chains[w.i])) {
		w.batch.FlushChain(tableRef(w.f).Chain(chain))
	}
	if evict {
		w.s.renewed[w.i] = w.s.book.devices[w.i]
		w.batch.DelFlowtable(flowRef(w.f))
		w.newFlowtable()
	}
	for _, id := range slices.Sorted(maps.Keys(there)) {
		for _, r := range w.s.rules(w.f, id) {
			w.batch.NewRule(r)
		}
	}
}

func (w *writer) addMember(op dataplane.Op) {
	set, key, _ := strings.Cut(op.Key.ID, "|")
	spec, ok := setSpec(w.f, set)
	if held := w.s.book.members[w.i]; !ok || held[set] >= int(spec.Size) {
		w.s.book.skipped[op.Key] = struct{}{}
		w.s.tell(func(st *Status) { st.Refused["full"]++ })
		return
	}
	w.s.book.members[w.i][set]++
	w.batch.AddElement(spec.Ref, &nft.Element{Key: []byte(key)})
}

func (w *writer) delMember(op dataplane.Op) {
	if _, was := w.s.book.skipped[op.Key]; was {
		delete(w.s.book.skipped, op.Key)
		return
	}
	set, key, _ := strings.Cut(op.Key.ID, "|")
	w.s.book.members[w.i][set]--
	w.batch.DelElement(tableRef(w.f).Set(set), &nft.Element{Key: []byte(key)})
}

// absent reports whether the kernel rejected an operation because an object or a device does not exist.
func absent(e unix.Errno) bool { return e == unix.ENOENT || e == unix.ENODEV }
