package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// fullSet is a full set, or a split set with a full shard, in one family.
type fullSet struct {
	family int
	def    *setDef
}

// fullSets returns the sets that the kernel reported as full (ENFILE).
func fullSets(refused *nft.BatchError, ops []dataplane.Op) (out []fullSet) {
	for _, e := range refused.Errors {
		if e.Errno != unix.ENFILE || len(e.Tags) == 0 || e.Tags[0] < 0 || e.Tags[0] >= len(ops) {
			continue
		}
		k := ops[e.Tags[0]].Key
		def := defOf(setKind(k.Kind))
		if full := (fullSet{famIndex(k.Family), def}); def != nil && !slices.Contains(out, full) {
			out = append(out, full)
		}
	}
	return out
}

// grow doubles the sets for which Apply has failed, in a transaction of its own,
// because the kernel uses the new size only after that commit. It returns nil if
// the caller can retry the batch, otherwise the error of Apply or another one.
func (d *Driver) grow(ctx context.Context, failed error, ops []dataplane.Op) error {
	var rebuild *dataplane.RebuildError
	var refused *nft.BatchError
	if d.sizes.fixed || !errors.As(failed, &rebuild) || !errors.As(failed, &refused) {
		return failed
	}
	larger, list := d.sizes, fullSets(refused, ops)
	d.batch.Reset()
	for _, full := range list {
		scale := &larger.scale[full.family][full.def.kind]
		if d.plan.fresh[full.family] || *scale-larger.made[full.family][full.def.kind] >= maxGrowth {
			return failed
		}
		*scale++
		for _, part := range full.def.parts() {
			d.batch.NewSet(full.def.spec(bothFamilies[full.family], part, *scale))
		}
	}
	switch err := d.commit(ctx); {
	case errors.Is(err, nft.ErrGeneration):
		return d.explain(err, nil)
	case err != nil:
		return failed
	}
	if err := d.hasGrown(ctx, list, &larger); err != nil {
		return errors.Join(failed, err)
	}
	if d.sizes.fixed {
		return failed
	}
	d.sizes = larger
	return nil
}

// hasGrown reads whether the kernel has applied the new sizes, and sets fixed if not.
// Kernels before 6.5 report success but ignore them.
func (d *Driver) hasGrown(ctx context.Context, list []fullSet, larger *setSizes) error {
	for _, full := range list {
		sets, err := d.k.Sets(ctx, tableRef(bothFamilies[full.family]))
		if err = d.seen.Tolerate(err); err != nil {
			return fmt.Errorf("read the size of a set: %w", err)
		}
		want := full.def.size(larger.scale[full.family][full.def.kind])
		d.sizes.fixed = d.sizes.fixed || slices.ContainsFunc(sets, func(s nft.Set) bool {
			return s.Ref.Name == full.def.parts()[0] && s.Size != want
		})
	}
	return nil
}
