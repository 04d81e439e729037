package iptables

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver. Ours is what has one of our names: so a
// restart knows its own, and what a kube-proxy left is taken over.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	d.busy.Store(true)
	defer d.busy.Store(false)
	d.ensured = false // what is wrong with the rules may be that a counter is gone
	began := d.p.Now()
	before, err := d.k.Stamp(ctx)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	there := newMirror()
	there.writes = d.there.writes + 1
	if err := d.readAll(ctx, scan{there: &there, emit: emit}); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	after, err := d.k.Stamp(ctx)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if before != after {
		return fmt.Errorf("load: %w", dataplane.ErrInterrupted)
	}
	d.there = there
	d.written.Store(there.writes)
	d.saw(after)
	d.readAt.Store(&began)
	d.unsure.Store(false)
	d.since = 0
	d.audit.finding.Store(nil)
	d.credit.spend(d.p.Now(), d.p.Now().Sub(began))
	return nil
}

// Survey implements dataplane.Driver. Each table is read in one piece, between two
// writes, so that nothing is missed whoever writes meanwhile.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	there := newMirror()
	if err := d.readAll(ctx, scan{there: &there, emit: emit, digests: true}); err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	return nil
}

// scan is what one reading of everything is for.
type scan struct {
	there   *mirror // takes what is there
	emit    func(dataplane.Key, string)
	digests bool // digests will do for the values of chains
}

// readAll asks the kernel itself where Probe has found that it can, and the programs for
// the rest.
func (d *Driver) readAll(ctx context.Context, r scan) error {
	for _, f := range d.families {
		readers := map[string]*loader{}
		for _, t := range tables {
			readers[t.String()] = newLoader(r, f, t)
		}
		rest, err := d.readOwn(ctx, f, readers)
		if err == nil && len(rest) > 0 {
			err = d.k.SaveAll(ctx, kernelFamily(f), rest, func(table string, line []byte) error { return readers[table].read(line) })
		}
		if err != nil {
			return err
		}
		for _, t := range tables {
			readers[t.String()].end()
			d.remember(readers[t.String()])
		}
	}
	return nil
}

// rule splits "-A CHAIN RULE"; ok is false for other lines.
func splitRule(line []byte) (chain, rule []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("-A "))
	if !ok {
		return nil, nil, false
	}
	chain, rule, _ = bytes.Cut(rest, []byte(" "))
	return chain, rule, true
}

// declared gives the chain of ":CHAIN - [0:0]".
func declared(line []byte) (chain []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(":"))
	if !ok {
		return nil, false
	}
	chain, _, _ = bytes.Cut(rest, []byte(" "))
	return chain, true
}

// loader reads one table: its lines chain by chain, and what chains there are before, among
// or behind them. It tells of nothing before the table was read to its end, so that one
// reading that failed can be forgotten for another.
type loader struct {
	scan
	ref   chainRef // the chain being read
	kind  dataplane.Kind
	sum   chainSum
	rules []string          // its rules, where their text is wanted
	head  string            // begins the IDs of a shared chain's lines
	ids   []string          // of its lines
	found []*seen           // in the order in which they were read
	texts map[string]string // the values of chains of their own, unless digests will do
	empty []string          // chains of ours that are there; of those with rules more is found
	jumps map[string]int
	mark  iptables.Mark // when it began; zero: nothing of it need be remembered
}

// seen is what one reading found of a chain of ours that has rules. It does not change.
type seen struct {
	chain  string
	kind   dataplane.Kind
	digest string   // of the value of a chain of its own
	lines  []string // of a shared one
	ids    []string // of its lines
	tidy   bool     // they stood in their order, each once
	sum    uint64
	rules  int
}

func newLoader(r scan, f model.Family, t table) *loader {
	return &loader{scan: r, ref: chainRef{family: f, table: t}, sum: newChainSum(), texts: map[string]string{}, jumps: map[string]int{}}
}

func (l *loader) read(line []byte) error {
	if name, ok := declared(line); ok {
		if kindOfChain(l.ref.table, string(name)) != 0 {
			l.empty = append(l.empty, string(name))
		}
		return nil
	}
	chain, rule, ok := splitRule(line)
	if !ok {
		return nil
	}
	if string(chain) != l.ref.chain {
		l.finish()
		l.ref.chain = string(chain)
		l.kind = kindOfChain(l.ref.table, l.ref.chain)
		l.head = l.ref.line("")
	}
	if l.kind == 0 {
		l.foreign(rule)
		return nil
	}
	l.sum.add(rule)
	switch {
	case l.isShared(): // one string for both
		id := l.head + string(rule)
		l.ids, l.rules = append(l.ids, id), append(l.rules, id[len(l.head):])
	case !l.digests:
		l.rules = append(l.rules, string(rule))
	}
	return nil
}

// isShared tells whether the lines of the chain being read are objects of their own.
func (l *loader) isShared() bool { return l.kind == kindLine || l.kind == kindBucket }

// foreign looks at a rule in somebody else's chain.
func (l *loader) foreign(text []byte) {
	if !builtIn(l.ref.chain) {
		return
	}
	rule := string(text)
	if !ourJump(l.ref.table, l.ref.chain, rule) {
		return
	}
	l.jumps[l.ref.line(rule)]++
}

// ourJump tells whether a rule in a chain that is not ours is: it stands in a
// built-in chain, leads to a chain of ours and says so in words that we or any
// kube-proxy use. A rule that somebody wrote to lead to our chains is theirs.
func ourJump(t table, chain, rule string) bool {
	i := strings.LastIndex(rule, " -j ")
	if i < 0 || !builtIn(chain) || !leadsIn(t, rule[i+4:]) {
		return false
	}
	return strings.Contains(rule, ` --comment "kubernetes `) || strings.Contains(rule, ` --comment "block incoming localnet connections"`) ||
		strings.Contains(rule, ` --comment "kube-proxy `) // of its ipvs mode
}

// builtIn tells whether a chain is one of the kernel's.
func builtIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// leadsIn tells whether built-in chains lead to a chain of ours.
func leadsIn(t table, chain string) bool {
	for _, j := range jumps() {
		if j.table == t && strings.HasSuffix(j.rule, " -j "+chain) {
			return true
		}
	}
	return false
}

func (l *loader) put(k dataplane.Kind, id, value string) {
	l.emit(dataplane.Key{Kind: k, Family: l.ref.family, ID: id}, value)
}

// finish ends the chain that was being read.
func (l *loader) finish() {
	if l.ref.chain == "" || l.kind == 0 {
		return
	}
	one := &seen{chain: l.ref.chain, kind: l.kind, sum: l.sum.sum(), rules: l.sum.rules}
	if l.isShared() {
		one.lines, one.ids, one.tidy = l.rules, l.ids, inOrder(l.rules)
		if !one.tidy {
			l.tidyUp(one)
		}
	} else {
		one.digest = l.digest()
		if !l.digests {
			l.texts[l.ref.chain] = body(l.rules)
		}
	}
	l.found = append(l.found, one)
	l.rules, l.ids = nil, nil
	l.sum.reset()
}

// tidyUp gives lines the order in which they should be, each once.
func (l *loader) tidyUp(one *seen) {
	one.lines = slices.Clone(one.lines)
	slices.SortFunc(one.lines, lineLess)
	one.lines = slices.Compact(one.lines)
	one.ids = one.ids[:0]
	for _, r := range one.lines {
		one.ids = append(one.ids, l.head+r)
	}
}

// digest is that of the value of a chain of its own, which has rules.
func (l *loader) digest() string {
	if l.sum.rules == 1 && l.sum.value.Sum64() == dataplane.Sum64("") { // one rule without a word
		return body([]string{""})
	}
	return l.sum.value.Digest()
}

// end tells what was found, now that the whole table was read.
func (l *loader) end() {
	l.finish()
	for _, id := range slices.Sorted(maps.Keys(l.jumps)) {
		l.put(kindJump, id, present)
		for n := l.jumps[id]; n > 1; n-- { // a second one does nothing and goes
			l.put(kindJump, id+sep+itoa(n), present)
		}
	}
	for _, one := range l.found {
		l.ref.chain = one.chain
		l.tell(one)
	}
	for _, name := range l.empty {
		if l.ref.chain = name; l.there.chains[l.ref] == nil {
			l.tellEmpty(kindOfChain(l.ref.table, name))
		}
	}
}

// tell emits a chain. A shared one that is out of order, or has a line twice, is reported
// as such, which makes it be written anew.
func (l *loader) tell(one *seen) {
	l.there.set(l.ref, one.lines, one.sum, one.rules)
	if one.kind != kindLine && one.kind != kindBucket {
		value, whole := l.texts[l.ref.chain]
		if !whole {
			value = one.digest
		}
		l.put(one.kind, l.ref.id(), value)
		return
	}
	for _, id := range one.ids {
		l.put(kindLine, id, present)
	}
	switch {
	case !one.tidy:
		l.put(kindBucket, l.ref.id(), "out of order")
	case one.kind == kindBucket:
		l.put(kindBucket, l.ref.id(), present)
	}
}

// tellEmpty emits a chain without rules. What leads to it is known: those that have rules
// were told before.
func (l *loader) tellEmpty(kind dataplane.Kind) {
	l.there.set(l.ref, nil, sumOf(nil), 0)
	switch {
	case kind == kindBucket:
		l.put(kindBucket, l.ref.id(), present)
	case kind != kindLine:
		l.put(kind, l.ref.id(), emptyBody)
	case l.there.refs[l.ref] == 0:
		l.put(kindBucket, l.ref.id(), "empty")
	}
}

// served drops what Probe found unusable.
func (d *Driver) served(list []model.Family) { d.families = list }
