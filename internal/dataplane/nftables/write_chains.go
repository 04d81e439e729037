package nftables

import (
	"errors"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// chains creates all chains before any rule, because rules jump to chains.
func (w *writer) chains() error {
	var hooks map[string]*nft.Hook // few batches create a base chain
	if len(w.d.plan.of(w.f, kindBaseChain)) > 0 {
		hooks = fixedHooks()
	}
	for k := kindLeafChain; k <= kindBaseChain; k++ {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				return
			}
			w.n++
			ref := tableRef(o.Key.Family).Chain(o.Key.ID)
			if _, there := w.old.chains[o.Key.ID]; o.Have != "" {
				w.d.batch.FlushChain(ref)
			} else if !there {
				w.d.batch.NewChain(nft.ChainSpec{Ref: ref, Hook: hooks[o.Key.ID]})
			}
		})
	}
	w.each(kindStickyRules, func(o *dataplane.Op) {
		w.n++
		if o.Have != "" {
			w.d.batch.FlushChain(tableRef(o.Key.Family).Chain(o.Key.ID))
		}
	})
	return w.rules()
}

// rules adds the desired rules of new and changed chains. If the chain book does not
// have the rules of an op, it returns an InvalidError.
func (w *writer) rules() error {
	var missing error
	for k := kindLeafChain; k <= kindStickyRules; k++ {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				return
			}
			rules, known := w.d.chains.rulesOf(o)
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

// deletions flushes the chains to delete first, because their rules may refer to each
// other and to sets. Then it deletes sets, whose elements may refer to chains, and then
// the chains.
func (w *writer) deletions() {
	w.goneChains(w.d.batch.FlushChain)
	for k := kindClients; k >= kindSet; k-- {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				w.d.batch.DelSet(tableRef(o.Key.Family).Set(o.Key.ID))
				w.n++
			}
		})
	}
	w.goneChains(func(c nft.ChainRef) {
		w.d.batch.DelChain(c)
		w.n++
	})
}

// goneChains calls do for each chain that is no longer desired, outer chains before leaves.
func (w *writer) goneChains(do func(nft.ChainRef)) {
	for k := kindBaseChain; k >= kindLeafChain; k-- {
		w.each(k, func(o *dataplane.Op) {
			if o.Want == "" {
				do(tableRef(o.Key.Family).Chain(o.Key.ID))
			}
		})
	}
}
