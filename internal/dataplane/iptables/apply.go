package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// Apply implements dataplane.Driver: one iptables-restore per family with only
// the chains that change, each table one transaction. The nf_tables programs take
// cubic time over large inputs, so a large batch goes in parts there, chains that
// are not yet reachable first.
func (d *Driver) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if len(b.Ops) == 0 {
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
	n := 0
	for _, f := range bothFamilies {
		p := newPlan(f, &d.there)
		for i := range b.Ops {
			if b.Ops[i].Key.Family == f {
				p.take(i, &b.Ops[i])
			}
		}
		if p.ops == 0 {
			continue
		}
		if err := d.write(ctx, p, b.Ops); err != nil {
			return dataplane.Applied{}, err
		}
		n += p.ops
	}
	return dataplane.Applied{Operations: n}, nil
}

// write does one family's plan.
func (d *Driver) write(ctx context.Context, p *plan, ops []dataplane.Op) error {
	p.settle()
	if err := d.look(ctx, p); err != nil {
		return err
	}
	written := map[table]int{}
	for _, s := range d.scripts(p) {
		if s.commits == 0 {
			continue
		}
		if err := d.restore(ctx, p, s, ops); err != nil {
			return err
		}
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
// and deleted as often as it stands there. That is rare: at start and at the end.
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

// partRules is about how many rules one iptables-nft-restore takes well.
const partRules = 3000

// scripts puts the plan into words. The filter table refuses what nat leaves
// alone. Where nat stops to translate and a refusal takes its place, the refusal
// is there before, so that no packet finds neither; else nat goes first: it is
// where a refused rule would be, and then nothing is written.
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

// parts cuts the front of a long list into scripts of their own. What goes, goes
// with the last.
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
func (d *Driver) restore(ctx context.Context, p *plan, s *script, ops []dataplane.Op) error {
	r := iptables.Restore{Family: kernelFamily(p.family), Input: s.Bytes(), Commits: s.commits, Expect: d.stamp}
	stamp, err := d.k.Restore(ctx, r)
	if errors.Is(err, iptables.ErrMoved) && !d.affordable() {
		// Others write all the time and to read everything is dear: each chain is
		// written whole, so write, and compare later.
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
	return d.explain(err, p.family, s, ops)
}

// explain turns what happened into the error classes of the contract. A failed
// restore is never trusted: what is there is read again before anything else is
// written, unless it was read just before and nothing was written since.
func (d *Driver) explain(err error, f model.Family, s *script, ops []dataplane.Op) error {
	var refused *iptables.RestoreError
	switch {
	case errors.Is(err, iptables.ErrMoved):
		return fmt.Errorf("apply: %w", dataplane.ErrConflict)
	case errors.As(err, new(*iptables.LockError)):
		return fmt.Errorf("apply %s: %w", f, err)
	}
	partial := d.since > 0
	if d.observer != nil {
		d.observer.RestoreFailed(f, partial)
	}
	if !errors.As(err, &refused) {
		d.doubt()
		return fmt.Errorf("apply %s: %w", f, err)
	}
	d.p.Log.Error("iptables-restore failed", "family", f.String(), "partial", partial, "program", refused.Program, "message", refused.Message,
		"line", refused.Text, "lines", len(s.blame)-1)
	switch {
	case refused.Busy():
		d.doubt()
		return fmt.Errorf("apply %s: %w", f, err)
	case refused.Denied():
		return fmt.Errorf("apply %s: %w: %w", f, dataplane.ErrUnsupported, err)
	case partial:
		d.doubt()
		return fmt.Errorf("apply %s: %w: %w", f, dataplane.ErrConflict, err)
	}
	if refused.Committed > 0 {
		d.doubt()
	}
	invalid := &dataplane.InvalidError{Err: err}
	if !refused.Commit {
		for _, n := range refused.Lines {
			if n < len(s.blame) && s.blame[n] >= 0 {
				invalid.Keys = append(invalid.Keys, ops[s.blame[n]].Key)
			}
		}
	}
	return invalid
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
