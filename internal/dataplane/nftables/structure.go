package nftables

import (
	"context"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// loader reads one table.
type loader struct {
	d       *Driver
	k       nft.Reader
	f       model.Family
	put     func(k dataplane.Kind, id, value string)
	damage  string // why the table must be rebuilt
	sets    map[string]bool
	sizes   setSizes
	clients []string // maps of clients
	others  []string // foreign sets
	counted []string // sets that count refused and dropped packets
	chains  []nft.Chain
	kinds   []dataplane.Kind // the kinds of the chains
	rules   map[string]*chainDigest
}

// table emits the actual objects of the table, or sets damage if it must be rebuilt.
func (l *loader) table(ctx context.Context, t *nft.Table) error {
	value, err := layoutOf(t)
	if err != nil {
		return err
	}
	switch {
	case !l.d.serves(l.f):
		l.put(dataplane.KindRoot, "", value)
		return nil
	case value != tableValue:
		l.damage = "another layout"
		return nil
	case t.Flags&nft.TableDormant != 0:
		l.damage = "the table is dormant"
		return nil
	}
	if err := l.structure(ctx); err != nil || l.damage != "" {
		return err
	}
	l.put(dataplane.KindRoot, "", value)
	l.emitStructure()
	return l.contents(ctx)
}

// structure reads sets, chains and rules. It sets damage if repairing single objects is
// not enough: the declaration of a set or base chain cannot be changed while rules use it.
func (l *loader) structure(ctx context.Context) error {
	table := tableRef(l.f)
	sets, err := l.k.Sets(ctx, table)
	if err = l.d.seen.Tolerate(err); err != nil {
		return err
	}
	l.sizes.read(l.f, sets)
	l.sets = map[string]bool{}
	for i := range sets {
		if sets[i].Flags&nft.SetAnonymous == 0 { // those belong to a foreign rule and are deleted with it
			l.set(&sets[i])
		}
	}
	if l.chains, err = l.k.Chains(ctx, table); err != nil {
		return err
	}
	hooks := fixedHooks()
	for i := range l.chains {
		c := &l.chains[i]
		want, fixed := hooks[c.Ref.Name]
		kind := kindOfChain(c, fixed)
		if strings.HasPrefix(c.Ref.Name, layoutPrefix) && c.Ref.Name != layoutChain {
			l.damage = "another layout"
		}
		if (fixed || kind != kindBaseChain) && !sameHook(want, c.Hook) {
			l.damage = "the hook of chain " + c.Ref.Name
		}
		l.kinds = append(l.kinds, kind)
	}
	return l.readRules(ctx)
}

// readRules computes the digest of the actual rules of each chain.
func (l *loader) readRules(ctx context.Context) error {
	rules, err := l.k.Rules(ctx, tableRef(l.f))
	if err = l.d.seen.Tolerate(err); err != nil {
		return err
	}
	hooked := map[string]bool{}
	for i := range l.chains {
		hooked[l.chains[i].Ref.Name] = l.kinds[i] == kindBaseChain
	}
	l.rules = map[string]*chainDigest{}
	for i := range rules {
		sum := l.rules[rules[i].Chain.Name]
		if sum == nil {
			fresh := digestFor(rules[i].Chain.Name, isSticky(rules[i].Chain.Name) && !hooked[rules[i].Chain.Name])
			sum = &fresh
			l.rules[rules[i].Chain.Name] = sum
		}
		sum.add(rules[i].UserData)
	}
	return nil
}

// set compares the actual declaration of one set with the desired one.
func (l *loader) set(row *nft.Set) {
	name := row.Ref.Name
	if strings.HasPrefix(name, clientsPrefix) {
		if !sameClients(l.f, *row) {
			l.damage = "the declaration of a map of clients"
		}
		l.clients = append(l.clients, name)
		return
	}
	if isCounted(name) {
		if !sameCounted(l.f, *row) {
			l.damage = "the declaration of set " + name
		}
		l.counted = append(l.counted, name)
		return
	}
	def := defNamed(name)
	if def == nil {
		l.others = append(l.others, name)
		return
	}
	if spec := def.spec(l.f, name, l.sizes.scale[famIndex(l.f)][def.kind]); !spec.Matches(*row) {
		l.damage = "the declaration of set " + name
	}
	l.sets[name] = true
}

// sameHook reports whether two hooks are equal; nil equals nil only.
func sameHook(a, b *nft.Hook) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// kindOfChain returns the kind that Render or Base would use for a chain of that name. A
// foreign chain gets the kind for which it is deleted in the right order.
func kindOfChain(c *nft.Chain, fixed bool) dataplane.Kind {
	if c.Hook != nil || fixed {
		return kindBaseChain
	}
	if strings.HasPrefix(c.Ref.Name, "xl-") || strings.HasPrefix(c.Ref.Name, guardedPrefix) {
		return kindOuterChain
	}
	return kindLeafChain
}

// emitStructure emits the actual sets, chains and rules.
func (l *loader) emitStructure() {
	for _, def := range ownSets() {
		for _, part := range def.parts() {
			if l.sets[part] {
				l.put(kindSet, part, def.digest(l.f))
			}
		}
	}
	for _, name := range l.counted {
		l.put(kindSet, name, countedDigest(l.f))
	}
	for _, name := range l.others {
		l.put(kindSet, name, "foreign")
	}
	for _, name := range l.clients {
		l.put(kindClients, name, clientsDigest(l.f))
	}
	for i := range l.chains {
		l.emitChain(l.chains[i].Ref.Name, l.kinds[i])
	}
}

// emitChain emits one chain. The chain of one Service port is two objects (frontend.sticky).
func (l *loader) emitChain(name string, kind dataplane.Kind) {
	value := noRules
	if sum := l.rules[name]; sum != nil {
		value = sum.String()
	}
	if kind != kindBaseChain && isSticky(name) {
		if value != noRules {
			l.put(kindStickyRules, name, value)
		}
		value = noRules
	}
	l.put(kind, name, value)
}
