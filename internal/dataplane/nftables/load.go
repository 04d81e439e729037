package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver. A table of ours that cannot be repaired
// object by object (written by another release, or damaged) asks for a rebuild; one
// of a family that we do not serve is reported as its root alone, which is
// unwanted, and Apply deletes the whole table.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	gen, err := d.k.Generation(ctx)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	tables, err := d.k.Tables(ctx)
	if err != nil {
		return loadError(err)
	}
	stick := newStickiness()
	var rebuild *dataplane.RebuildError
	for _, f := range bothFamilies {
		for i := range tables {
			if tables[i].Ref != tableRef(f) {
				continue
			}
			l := loader{d: d, f: f, stick: &stick, put: func(k dataplane.Kind, id, value string) {
				emit(dataplane.Key{Kind: k, Family: f, ID: id}, value)
			}}
			if err := l.table(ctx, &tables[i]); err != nil {
				return loadError(err)
			}
			if l.damage != "" {
				if rebuild == nil {
					rebuild = &dataplane.RebuildError{Why: l.damage}
				}
				rebuild.Families = append(rebuild.Families, f)
			}
		}
	}
	now, err := d.k.Generation(ctx)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if !d.seen.quiet(ctx, gen, now) {
		return fmt.Errorf("load: %w", dataplane.ErrInterrupted)
	}
	d.seen.compared(now)
	if err := d.settle(ctx, stick); err != nil {
		return err
	}
	if rebuild != nil {
		return rebuild
	}
	return nil
}

// settle takes over what a Load found of stickiness, and does the sweeps that are
// owed: of an Apply whose sweep failed, or that was done although it failed. What
// was read does not say it all: an endpoint that only pods may still use is there.
func (d *Driver) settle(ctx context.Context, found stickiness) error {
	found.stale, found.except = d.stick.stale, d.stick.except
	d.stick, d.unsure = found, false
	d.plan.sort(dataplane.Batch{Ops: d.perhaps})
	if err := d.forget(ctx, d.perhaps); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	d.perhaps = nil
	return nil
}

// loadError: a set that vanishes between the list of sets and its dump is a
// concurrent change like any other.
func loadError(err error) error {
	if errors.Is(err, nft.ErrInterrupted) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("load: %w: %w", dataplane.ErrInterrupted, err)
	}
	return fmt.Errorf("load: %w", err)
}

// markText begins the comment by which we know our own table; the layout follows.
const markText = "fairlead "

func layoutValue(n int) string { return fmt.Sprintf("layout %d", n) }

// layoutOf reads the mark of a table.
func layoutOf(t *nft.Table) (value string, err error) {
	if t.Flags&nft.TableOwner != 0 {
		return "", fmt.Errorf("table %s %w: a running program owns it (netlink port %d); end that program or rename its table",
			t.Ref, dataplane.ErrNotOurs, t.Owner)
	}
	text, _ := comment(t.UserData)
	value, ours := strings.CutPrefix(text, markText)
	if !ours || value == "" {
		return "", fmt.Errorf("table %s %w: it does not carry our mark; if nothing needs it, remove it with: nft delete table %s",
			t.Ref, dataplane.ErrNotOurs, t.Ref)
	}
	return value, nil
}

// comment reads what nft.Comment wrote.
func comment(userData []byte) (string, bool) {
	if len(userData) < 3 || userData[0] != 0 || int(userData[1]) > len(userData)-2 || userData[1] == 0 {
		return "", false
	}
	return strings.TrimRight(string(userData[2:2+userData[1]]), "\x00"), true
}

// loader reads one table.
type loader struct {
	d      *Driver
	f      model.Family
	put    func(k dataplane.Kind, id, value string)
	stick  *stickiness // the driver's, if all goes well
	damage string      // why the table must be built anew
	sets   map[string]bool
	others []string // sets that are not ours
	chains []nft.Chain
	kinds  []dataplane.Kind // of the chains
	rules  map[string]*chainDigest
}

func (l *loader) table(ctx context.Context, t *nft.Table) error {
	value, err := layoutOf(t)
	if err != nil {
		return err
	}
	switch {
	case !l.d.serves(l.f):
		l.put(dataplane.KindRoot, "", value)
		return nil
	case value != layoutValue(layout):
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

// structure reads sets, chains and rules, and finds what no repair of single
// objects can mend: a set's or base chain's declaration cannot be changed while
// rules use it.
func (l *loader) structure(ctx context.Context) error {
	table := tableRef(l.f)
	sets, err := l.d.k.Sets(ctx, table)
	if err = l.d.tolerate(err); err != nil {
		return err
	}
	l.d.room.read(l.f, sets)
	l.sets = map[string]bool{}
	for i := range sets {
		def := defNamed(sets[i].Ref.Name)
		if sets[i].Flags&nft.SetAnonymous != 0 {
			continue // part of a foreign rule, and goes with it
		}
		if def == nil {
			l.others = append(l.others, sets[i].Ref.Name)
			continue
		}
		if spec := def.spec(l.f, sets[i].Ref.Name, l.d.room.scale[famIndex(l.f)][def.kind]); !spec.Matches(sets[i]) {
			l.damage = "the declaration of set " + sets[i].Ref.Name
		}
		l.sets[sets[i].Ref.Name] = true
	}
	if l.chains, err = l.d.k.Chains(ctx, table); err != nil {
		return err
	}
	hooks := fixedHooks()
	for i := range l.chains {
		c := &l.chains[i]
		want, fixed := hooks[c.Ref.Name]
		kind := kindOfChain(c, fixed)
		if (fixed || kind != kindBaseChain) && !sameHook(want, c.Hook) {
			l.damage = "the hook of chain " + c.Ref.Name
		}
		l.kinds = append(l.kinds, kind)
	}
	rules, err := l.d.k.Rules(ctx, table)
	if err = l.d.tolerate(err); err != nil {
		return err
	}
	l.rules = map[string]*chainDigest{}
	for i := range rules {
		sum := l.rules[rules[i].Chain.Name]
		if sum == nil {
			fresh := newChainDigest()
			sum = &fresh
			l.rules[rules[i].Chain.Name] = sum
		}
		sum.add(rules[i].UserData)
	}
	return nil
}

func sameHook(a, b *nft.Hook) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// kindOfChain gives the kind under which Render would put a chain of that name;
// foreign ones get the one that deletes them in the right order.
func kindOfChain(c *nft.Chain, fixed bool) dataplane.Kind {
	if c.Hook != nil || fixed {
		return kindBaseChain
	}
	if strings.HasPrefix(c.Ref.Name, "xl-") || strings.HasPrefix(c.Ref.Name, guardedPrefix) {
		return kindOuterChain
	}
	return kindLeafChain
}

func (l *loader) emitStructure() {
	for i := range setDefs {
		for _, part := range setDefs[i].parts() {
			if l.sets[part] {
				l.put(kindSet, part, setDefs[i].digest(l.f))
			}
		}
	}
	for _, name := range l.others {
		l.put(kindSet, name, "foreign")
	}
	empty := newChainDigest()
	for i := range l.chains {
		name := l.chains[i].Ref.Name
		value := empty.String()
		if sum := l.rules[name]; sum != nil {
			value = sum.String()
		}
		l.put(l.kinds[i], name, value)
	}
}
