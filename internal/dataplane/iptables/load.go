package iptables

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
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
	if err := d.readAll(ctx, &there, emit); err != nil {
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

// Survey implements dataplane.Surveyor. Each table is read in one piece, between two
// writes, so that nothing is missed whoever writes meanwhile.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	there := newMirror()
	if err := d.readAll(ctx, &there, emit); err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	return nil
}

func (d *Driver) readAll(ctx context.Context, there *mirror, emit func(dataplane.Key, string)) error {
	for _, f := range d.families {
		readers := map[string]*loader{}
		for _, t := range tables {
			readers[t.String()] = &loader{there: there, ref: chainRef{family: f, table: t}, emit: emit, jumps: map[string]int{}}
		}
		err := d.k.SaveAll(ctx, kernelFamily(f), tableNames(), func(table string, line []byte) error { return readers[table].read(line) })
		if err != nil {
			return err
		}
		for _, t := range tables {
			readers[t.String()].end()
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

// loader reads one table. iptables-save prints the chains first, then the rules,
// chain by chain.
type loader struct {
	there *mirror
	ref   chainRef // the chain being read
	kind  dataplane.Kind
	emit  func(dataplane.Key, string)
	rules []string
	empty []string // chains of ours without rules so far
	jumps map[string]int
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
	}
	if l.kind == 0 {
		l.foreign(string(rule))
		return nil
	}
	l.rules = append(l.rules, string(rule))
	return nil
}

// foreign looks at a rule in somebody else's chain.
func (l *loader) foreign(rule string) {
	if !ourJump(l.ref.table, l.ref.chain, rule) {
		return
	}
	id := l.ref.line(rule)
	if l.jumps[id]++; l.jumps[id] > 1 { // a second one does nothing and goes
		id += sep + itoa(l.jumps[id])
	}
	l.put(kindJump, id, present)
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

// finish emits the chain that was being read.
func (l *loader) finish() {
	if l.ref.chain == "" || l.kind == 0 {
		return
	}
	rules := l.rules
	l.rules = nil
	switch l.kind {
	case kindLine, kindBucket:
		l.shared(rules)
	default:
		sum := sumOf(rules)
		l.there.set(l.ref, nil, sum, len(rules))
		l.put(l.kind, l.ref.id(), body(rules))
	}
}

// shared emits the lines of a shared chain. One that is out of order, or has a
// line twice, is reported as such, which makes it be written anew.
func (l *loader) shared(rules []string) {
	lines := slices.Clone(rules)
	slices.SortFunc(lines, lineLess)
	lines = slices.Compact(lines)
	l.there.set(l.ref, lines, sumOf(rules), len(rules))
	for _, r := range lines {
		l.put(kindLine, l.ref.line(r), present)
	}
	switch {
	case !slices.Equal(rules, lines):
		l.put(kindBucket, l.ref.id(), "out of order")
	case l.kind == kindBucket:
		l.put(kindBucket, l.ref.id(), present)
	}
}

// end emits what is known only when the whole table was read: chains without rules.
func (l *loader) end() {
	l.finish()
	for _, name := range l.empty {
		ref := chainRef{l.ref.family, l.ref.table, name}
		if l.there.chains[ref] != nil {
			continue
		}
		l.ref.chain, l.kind = name, kindOfChain(l.ref.table, name)
		l.there.set(ref, nil, sumOf(nil), 0)
		switch {
		case l.kind == kindBucket:
			l.put(kindBucket, ref.id(), present)
		case l.kind != kindLine:
			l.put(l.kind, ref.id(), emptyBody)
		case l.there.refs[ref] == 0:
			l.put(kindBucket, ref.id(), "empty")
		}
	}
}

// served drops what Probe found unusable.
func (d *Driver) served(list []model.Family) { d.families = list }
