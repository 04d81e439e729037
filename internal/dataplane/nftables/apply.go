package nftables

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// keepBatch is how many bytes the batch buffer may keep between two calls of Apply.
const keepBatch = 1 << 20

// Apply implements dataplane.Driver. It writes the batch in one transaction. If a set
// is full it grows the set in a transaction of its own and retries.
func (d *Driver) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if len(b.Ops)+len(b.Rebuild) == 0 {
		return dataplane.Applied{}, nil
	}
	if d.seen.Knows() == 0 {
		g, err := d.k.Generation(ctx)
		if err != nil {
			return dataplane.Applied{}, fmt.Errorf("apply: %w", err)
		}
		d.seen.Compared(g)
	}
	d.plan.sort(b)
	for {
		before := d.sizes
		n, err := d.apply(ctx, b)
		if err == nil {
			d.forget(b.Ops)
			return dataplane.Applied{Operations: n}, nil
		}
		d.sizes = before
		if err = d.grow(ctx, err, b.Ops); err != nil {
			return dataplane.Applied{}, err
		}
	}
}

// forget drops from the chain book the rules of sticky chains that a batch removed
// from the kernel. A rebuild writes all desired chains, so rules of other chains are
// not kept after it.
func (d *Driver) forget(ops []dataplane.Op) {
	for i, f := range bothFamilies {
		list := d.plan.of(i, kindStickyRules)
		if d.plan.rebuild[i] {
			wanted := make(map[string]struct{}, len(list))
			for _, at := range list {
				wanted[ops[at].Want] = struct{}{}
			}
			d.chains.keep(f, wanted)
			continue
		}
		for _, at := range list {
			d.chains.forget(f, ops[at].Have)
		}
	}
}

// apply writes the batch that d.plan has sorted, and returns the number of operations.
func (d *Driver) apply(ctx context.Context, b dataplane.Batch) (int, error) {
	var old [2]remains
	for i, f := range bothFamilies {
		var err error
		if d.plan.rebuild[i] {
			if old[i], err = d.survey(ctx, f); err != nil {
				return 0, fmt.Errorf("read the objects to rebuild: %w", err)
			}
		}
		if d.plan.fresh[i] {
			d.sizes.choose(i, b)
		}
	}
	n, err := d.write(b.Ops, &old, nil)
	if err != nil {
		return 0, err
	}
	if err = d.commit(ctx); err == nil {
		d.dropLeftOver(ctx, &old)
		return n, nil
	}
	if vague := vagueTags(err); vague != nil {
		// Retry the same batch, laid out so that the kernel's error names the object.
		// The kernel is expected to refuse the whole retry too, so nothing is written.
		if n, err = d.write(b.Ops, &old, vague); err != nil {
			return 0, err
		}
		if err = d.commit(ctx); err == nil {
			d.dropLeftOver(ctx, &old)
			return n, nil
		}
	}
	return 0, d.explain(err, b.Ops)
}
