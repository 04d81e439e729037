package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// Apply implements dataplane.Driver: one iptables-restore per family with only
// the chains that change, each table one transaction. The nf_tables programs take
// cubic time over large inputs, so a large batch goes in parts there, chains that
// are not yet reachable first.
func (d *Driver) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if len(b.Ops)+len(b.Rebuild) == 0 {
		return dataplane.Applied{}, nil
	}
	d.busy.Store(true)
	defer d.busy.Store(false)
	if d.stamp == (iptables.Stamp{}) {
		s, err := d.k.Stamp(ctx)
		if err != nil {
			return dataplane.Applied{}, fmt.Errorf("apply: %w", err)
		}
		d.saw(s)
	}
	if d.counts && !d.ensured {
		if err := d.ensureCounters(); err != nil {
			return dataplane.Applied{}, fmt.Errorf("apply: %w", err)
		}
	}
	defer d.tellContention()
	if len(b.Rebuild) > 0 {
		unwanted, err := d.unwanted(ctx, b)
		if err != nil {
			return dataplane.Applied{}, fmt.Errorf("apply: %w", err)
		}
		b.Ops = append(b.Ops[:len(b.Ops):len(b.Ops)], unwanted...)
	}
	n := 0
	for _, f := range bothFamilies {
		p := newPlan(f, &d.there)
		p.batch, p.begun = b.Ops, n > 0
		for i := range b.Ops {
			if b.Ops[i].Key.Family == f {
				p.take(i, &b.Ops[i])
			}
		}
		if p.ops == 0 {
			continue
		}
		if err := d.write(ctx, p); err != nil {
			return dataplane.Applied{}, err
		}
		n += p.ops
	}
	return dataplane.Applied{Operations: n}, nil
}

// unwanted returns the operations that delete the actual objects of the families of a rebuild
// that the batch does not contain.
func (d *Driver) unwanted(ctx context.Context, b dataplane.Batch) ([]dataplane.Op, error) {
	wanted := make(map[dataplane.Key]bool, len(b.Ops))
	for i := range b.Ops {
		wanted[b.Ops[i].Key] = true
	}
	var out []dataplane.Op
	err := d.Load(ctx, func(k dataplane.Key, have string) {
		if slices.Contains(b.Rebuild, k.Family) && !wanted[k] {
			out = append(out, dataplane.Op{Key: k, Have: have})
		}
	})
	return out, err
}

// write executes one family's plan.
func (d *Driver) write(ctx context.Context, p *plan) error {
	p.settle()
	if err := d.look(ctx, p); err != nil {
		return err
	}
	written := map[table]int{}
	for _, s := range d.scripts(p) {
		if s.commits == 0 {
			continue
		}
		if err := d.restore(ctx, p, s); err != nil {
			return err
		}
		p.begun = true
		for t, n := range s.written {
			written[t] += n
		}
	}
	p.record()
	d.written.Store(d.there.writes)
	if d.observer != nil {
		for _, t := range [...]table{nat, filter} {
			d.observer.IPTablesRules(t.String(), p.family, d.there.rules[familyTable{byte(p.family), t}], written[t])
		}
	}
	return nil
}

// look reads the built-in chains that change: a rule there must be added once,
// and deleted as often as it occurs. That is rare: at start and at the end.
func (d *Driver) look(ctx context.Context, p *plan) error {
	there := map[chainRef]map[string]int{}
	var needed []jumpOp
	for _, j := range p.jumps {
		if there[j.chainRef] == nil {
			rules, err := d.k.List(ctx, kernelFamily(p.family), j.table.String(), j.chain)
			if err != nil {
				return fmt.Errorf("read chain %s %s: %w", j.table, j.chain, err)
			}
			count := map[string]int{}
			for _, r := range rules {
				count[strings.TrimPrefix(r, "-A "+j.chain+" ")]++
			}
			there[j.chainRef] = count
		}
		count := there[j.chainRef]
		if j.add && count[j.rule] == 0 {
			count[j.rule]++
			needed = append(needed, j)
		}
		if !j.add && count[j.rule] > 0 {
			count[j.rule]--
			needed = append(needed, j)
		}
	}
	p.jumps = needed
	return nil
}

// partRules is about the number of rules that one iptables-nft-restore processes efficiently.
const partRules = 3000

// scripts returns the plan as input of iptables-restore. The filter table rejects what nat does not
// translate. Where a rejection replaces a translation, the rejection
// is written first, so that every packet meets one of the two. Otherwise nat is written first: it is
// where a rule that the kernel rejects would be, and then nothing is written.
func (d *Driver) scripts(p *plan) []*script {
	var out []*script
	natWrites := p.of(nat)
	if d.k.Backend() == iptables.NFT {
		var early []*script
		early, natWrites = parts(natWrites)
		out = append(out, early...)
	}
	s := newScript()
	filterWrites, filterJumps := p.of(filter), p.jumpsOf(filter)
	_, natShrinks := p.moves(nat)
	grows, shrinks := p.moves(filter)
	switch {
	case natShrinks && grows && shrinks:
		s.section(filter, filterWrites, filterJumps, true)
		s.section(nat, natWrites, p.jumpsOf(nat), false)
		s.section(filter, filterWrites, nil, false)
	case natShrinks && grows:
		s.section(filter, filterWrites, filterJumps, false)
		s.section(nat, natWrites, p.jumpsOf(nat), false)
	default:
		s.section(nat, natWrites, p.jumpsOf(nat), false)
		s.section(filter, filterWrites, filterJumps, false)
	}
	s.section(mangle, p.of(mangle), p.jumpsOf(mangle), false)
	return append(out, s)
}

// parts splits the front of a long list into separate scripts. Deletions are part
// of the last one.
func parts(list []*write) (early []*script, rest []*write) {
	total := 0
	for _, w := range list {
		total += w.size()
	}
	var part, gone []*write
	n := 0
	for _, w := range list {
		if total-n <= partRules || w.kind == kindBase {
			rest = append(rest, w)
			continue
		}
		if w.gone {
			gone = append(gone, w)
			continue
		}
		part = append(part, w)
		if n += w.size(); n >= partRules {
			s := newScript()
			s.section(nat, part, nil, false)
			early = append(early, s)
			part, total, n = nil, total-n, 0
		}
	}
	return early, append(append(part, rest...), gone...)
}

func (w *write) size() int {
	if w.add != nil {
		return 1 + len(w.lines)
	}
	return 2 + strings.Count(w.body, "\n")
}

func (p *plan) jumpsOf(t table) []jumpOp {
	var out []jumpOp
	for _, j := range p.jumps {
		if j.table == t {
			out = append(out, j)
		}
	}
	return out
}

// restore runs one script.
func (d *Driver) restore(ctx context.Context, p *plan, s *script) error {
	r := iptables.Restore{Family: kernelFamily(p.family), Input: s.Bytes(), Commits: s.commits, Expect: d.stamp}
	stamp, err := d.k.Restore(ctx, r)
	if errors.Is(err, iptables.ErrMoved) && (p.begun || !d.affordable()) {
		// Other programs write continually and a full read is expensive, or it would find the written
		// part of this batch and attribute it to them. Each chain is written whole, so
		// write, and compare later.
		d.doubt()
		r.Expect = iptables.Stamp{}
		stamp, err = d.k.Restore(ctx, r)
	}
	if err == nil {
		d.since++
		d.saw(stamp)
		return nil
	}
	if errors.As(err, new(*iptables.RestoreError)) && stamp != (iptables.Stamp{}) {
		d.saw(stamp)
	}
	return d.explain(ctx, err, p, s)
}

func (d *Driver) tellContention() {
	if d.observer == nil || d.p.Contended == nil {
		return
	}
	if n := d.p.Contended(); n > d.waited {
		d.observer.IPTablesContended(int(n - d.waited))
		d.waited = n
	}
}
