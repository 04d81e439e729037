package nftables

import (
	"context"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// remains is the actual state of a family's table at the start of a rebuild. A rebuild
// keeps the table and its maps of clients. In one transaction it flushes all chains,
// flushes or recreates all other sets, and writes all desired objects. Chains and their
// hooks are kept, because kernels before 6.2 must not delete a chain together with an
// element that points to it.
type remains struct {
	table  bool // the table exists
	spoilt bool // nothing in the table can be kept
	chains map[string]*nft.Hook
	sets   map[string]nft.Set
	left   []nft.ChainRef // chains that are not desired, empty after the rebuild
}

// survey reads the actual table, chains and sets for a rebuild. It returns an error for
// a table that another program owns, as Load does.
func (d *Driver) survey(ctx context.Context, f model.Family) (remains, error) {
	var r remains
	tables, err := d.k.Tables(ctx)
	if err != nil {
		return r, err
	}
	for i := range tables {
		if tables[i].Ref != tableRef(f) {
			continue
		}
		value, err := layoutOf(&tables[i])
		if err != nil {
			return r, err
		}
		r.table, r.spoilt = true, value != tableValue || tables[i].Flags&nft.TableDormant != 0
	}
	if !r.table || r.spoilt {
		return r, nil
	}
	chains, err := d.k.Chains(ctx, tableRef(f))
	if err = d.seen.Tolerate(err); err != nil {
		return r, err
	}
	r.chains = make(map[string]*nft.Hook, len(chains))
	hooks := fixedHooks()
	for i := range chains {
		name := chains[i].Ref.Name
		r.chains[name] = chains[i].Hook
		if hooks[name] != nil && chains[i].Hook == nil {
			r.spoilt = true // a rule may jump to it, so the kernel can neither hook nor delete it
		}
	}
	sets, err := d.k.Sets(ctx, tableRef(f))
	if err = d.seen.Tolerate(err); err != nil {
		return r, err
	}
	r.sets = make(map[string]nft.Set, len(sets))
	for i := range sets {
		if sets[i].Flags&nft.SetAnonymous == 0 { // the kernel deletes those with their rules
			r.sets[sets[i].Ref.Name] = sets[i]
		}
	}
	return r, nil
}

// clear writes the operations that empty the table. It removes from w.old the objects that they delete.
func (w *writer) clear() {
	b, r := &w.d.batch, &w.old
	table := tableRef(bothFamilies[w.f])
	if r.spoilt {
		w.d.delTable(table)
		*r = remains{}
		return
	}
	for name := range r.chains {
		b.FlushChain(table.Chain(name))
	}
	wanted := w.wanted(kindClients)
	for name := range r.sets {
		_, keep := wanted[name]
		if strings.HasPrefix(name, clientsPrefix) && keep && sameClients(bothFamilies[w.f], r.sets[name]) {
			continue
		}
		set := r.sets[name]
		if def := defNamed(name); def != nil && w.sameSet(def, set) {
			b.FlushSet(set.Ref)
			continue
		}
		if set.Verdicts() {
			b.FlushSet(set.Ref) // so that its elements no longer refer to chains
		}
		b.DelSet(table.Set(name))
		delete(r.sets, name)
	}
	w.clearChains()
}

// clearChains deletes base chains that differ from the desired ones: no rule can jump
// to a base chain.
func (w *writer) clearChains() {
	hooks := fixedHooks()
	wanted := w.wanted(kindLeafChain, kindOuterChain, kindBaseChain)
	w.old.left = w.old.left[:0]
	for name, hook := range w.old.chains {
		ref := tableRef(bothFamilies[w.f]).Chain(name)
		_, keep := wanted[name]
		switch {
		case hook != nil && (!keep || !sameHook(hooks[name], hook)):
			w.d.batch.DelChain(ref)
			delete(w.old.chains, name)
		case strings.HasPrefix(name, layoutPrefix) && !keep: // no rule jumps to it either
			w.d.batch.DelChain(ref)
		case hook == nil && !keep:
			w.old.left = append(w.old.left, ref)
		}
	}
}

// wanted returns the IDs of the ops of the listed kinds. In a rebuild these are the desired objects.
func (w *writer) wanted(list ...dataplane.Kind) map[string]struct{} {
	out := map[string]struct{}{}
	for _, k := range list {
		for _, i := range w.d.plan.of(w.f, k) {
			out[w.ops[i].Key.ID] = struct{}{}
		}
	}
	return out
}

// dropLeftOver deletes the chains that a rebuild left empty, in a transaction of its
// own. If that fails the next Load reads them.
func (d *Driver) dropLeftOver(ctx context.Context, old *[2]remains) {
	d.batch.Reset()
	for f := range old {
		for _, c := range old[f].left {
			d.batch.DelChain(c)
		}
	}
	if d.batch.Len() > 0 {
		_ = d.commit(ctx)
	}
}
