package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Sets are made with a size, because only then does the kernel take its fixed
// hash: dumps of the growing one are wrong while it rehashes in the background,
// walks of it (dumps, checks of new rules) take twice as long, and so do big
// inserts (measured on 6.18: docs/design/nftables.md). A size is a limit, and the
// kernel makes the buckets for it at once (8 bytes each, and a look for each message
// of a dump); so a set doubles when it is full. Since 6.5 the kernel raises the limit of
// a set that is there, up to maxGrowth times, for the buckets stay as many as they were:
// then, and before 6.5, a rebuild makes it anew, larger.

// maxGrowth is how often a set doubles before it is made anew: six elements are then in
// a bucket, where three quarters of one were planned.
const maxGrowth = 3

// maxScale is the largest set: 12 million endpoint slots in all shards, 1.5 million Frontends.
const maxScale = 8

// firstSize is a set's size at scale 0, 0 of a set that is not hashed. Three quarters
// of a power of two: the kernel makes a bucket for each quarter more, rounded up.
func (s *setDef) firstSize() uint32 {
	switch {
	case s.shape == shapeRanges || s.shape == shapeAllowed || s.ident == identRange:
		return 0
	case s.split:
		return 3_072 // times the shards
	case s.kind == kindNodePortIP:
		return 768
	}
	return 6_144
}

func (s *setDef) size(scale int) uint32 { return s.firstSize() << scale }

// setSizes knows how large the sets are. Sets of one kind are of one size, that of
// the fullest shard.
type setSizes struct {
	scale [2][kinds]int
	made  [2][kinds]int // the scale that the buckets are for
	fixed bool          // this kernel leaves sizes as they are
}

// counters are the kinds, and behind them the shards.
const counters = int(kinds) + shards

func counterOf(k dataplane.Key) int {
	if def := defOf(k.Kind); def != nil && def.split {
		return int(kinds) + shardOf(k.ID)
	}
	return int(setKind(k.Kind))
}

// setKind is the kind whose set holds objects of a kind.
func setKind(k dataplane.Kind) dataplane.Kind {
	if def := defOf(k); def != nil && def.hashed {
		return k - kindHashed + kindEndpoints
	}
	return k
}

// choose sets the scales of a table that this batch is about to make: for what the
// batch holds, and what follows at once in further batches.
func (c *setSizes) choose(f int, b dataplane.Batch) {
	var have [counters]int
	count := func(o *dataplane.Op) {
		if famIndex(o.Key.Family) == f {
			have[counterOf(o.Key)] += countOf(o)
		}
	}
	for i := range b.Ops {
		count(&b.Ops[i])
	}
	if b.Later != nil {
		for o := range b.Later {
			count(&o)
		}
	}
	for _, def := range ownSets() {
		n := have[def.kind]
		if def.split {
			n = slices.Max(have[kinds:])
		}
		c.scale[f][def.kind] = def.scaleFor(n)
		c.made[f][def.kind] = c.scale[f][def.kind]
	}
}

func countOf(o *dataplane.Op) int {
	if def := defOf(o.Key.Kind); def != nil && (def.shape == shapePool || def.shape == shapeLive) {
		return len(o.Want) / def.slotWidth(o.Key.Family)
	}
	return 1
}

// scaleFor leaves half as much again as room.
func (s *setDef) scaleFor(n int) int {
	scale := 0
	for s.firstSize() > 0 && n*3/2 > int(s.size(scale)) && scale < maxScale {
		scale++
	}
	return scale
}

// read finds the scales of a table. A size that none makes is left to the
// comparison of declarations.
func (c *setSizes) read(f model.Family, sets []nft.Set) {
	for i := range sets {
		def := defNamed(sets[i].Ref.Name)
		if def == nil || def.firstSize() == 0 {
			continue
		}
		for scale := range maxScale + 1 {
			if def.size(scale) == sets[i].Size {
				c.scale[famIndex(f)][def.kind] = scale
			}
		}
	}
}

// loaded takes the scales that a Load has found. How a set was made does not show: one
// of another size than we knew counts as made so.
func (c *setSizes) loaded(f int, found *setSizes) {
	for k, scale := range found.scale[f] {
		if c.scale[f][k] != scale {
			c.scale[f][k], c.made[f][k] = scale, scale
		}
	}
}

// overflow asks for a rebuild if the kernel says that a set is full. A rebuild holds
// everything, so that choose finds the right size.
func (c *setSizes) overflow(refused *nft.BatchError, ops []dataplane.Op) *dataplane.RebuildError {
	var out *dataplane.RebuildError
	for _, full := range fullSets(refused, ops) {
		if c.scale[full.family][full.def.kind] >= maxScale {
			continue
		}
		if out == nil {
			out = &dataplane.RebuildError{Why: "a set is full"}
		}
		if f := bothFamilies[full.family]; !slices.Contains(out.Families, f) {
			out.Families = append(out.Families, f)
		}
	}
	return out
}
