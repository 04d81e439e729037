package iptables

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// Cleanup implements dataplane.Driver: in every backend it deletes the rules that
// lead to our chains and the chains, by their names; then the counters, which
// cannot go while a rule feeds them.
func (d *Driver) Cleanup(ctx context.Context) error {
	var problems []error
	for _, k := range append([]iptables.Kernel{d.k}, d.p.Others...) {
		if err := wipe(ctx, k); err != nil {
			problems = append(problems, fmt.Errorf("clean up iptables (%s): %w", k.Backend(), err))
		}
	}
	if len(problems) == 0 {
		problems = append(problems, d.removeCounters(ctx))
	}
	d.there = newMirror()
	d.saw(iptables.Stamp{})
	return errors.Join(problems...)
}

// wipe makes nothing be wanted of all that is there.
func wipe(ctx context.Context, k iptables.Kernel) error {
	w := New(Params{Kernel: k})
	for _, f := range bothFamilies {
		w.families = []model.Family{f}
		var batch dataplane.Batch
		err := w.Load(ctx, func(key dataplane.Key, have string) {
			batch.Ops = append(batch.Ops, dataplane.Op{Key: key, Have: have})
		})
		if err != nil {
			return err
		}
		// The fixed shared chains go too: nothing leads to them any more.
		p := newPlan(f, &w.there)
		p.batch = batch.Ops
		for i := range batch.Ops {
			p.take(i, &batch.Ops[i])
		}
		if p.ops == 0 {
			continue
		}
		for _, chain := range p.writes {
			chain.gone = true
		}
		if err := w.look(ctx, p); err != nil {
			return err
		}
		s := newScript()
		for _, t := range tables {
			s.section(t, p.of(t), p.jumpsOf(t), false)
		}
		if err := w.restore(ctx, p, s); err != nil {
			return err
		}
	}
	return nil
}
