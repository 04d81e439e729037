package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Sets are declared with a size, because only then does the kernel use its fixed
// hash. Dumps of the growing hash are wrong while it rehashes in the background,
// walks of it (dumps, checks of new rules) take twice as long, and so do large
// inserts (measured on 6.18: docs/design/nftables.md). A size is a limit, and the
// kernel allocates the buckets for it at once (8 bytes each, and every message of a dump
// visits each), so the size of a set doubles when it is full. Since 6.5 the kernel raises the
// limit of an existing set. The number of buckets stays the same, so this is done at most
// maxGrowth times. After that, and always before 6.5, a rebuild makes a larger set.

// maxGrowth is how often a set doubles before it is rebuilt. A bucket then holds six
// elements, where three quarters of one were planned.
const maxGrowth = 3

// maxScale is the scale of the largest set: 12 million endpoint slots in all shards, 1.5 million Frontends.
const maxScale = 8

// firstSize returns a set's size at scale 0, or 0 if the set is not hashed. Sizes are three
// quarters of a power of two: the kernel allocates a third more buckets, rounded up.
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

// setSizes holds the sizes of the sets. All sets of one kind have the same size, that of
// the fullest shard.
type setSizes struct {
	scale [2][kinds]int
	made  [2][kinds]int // the scale that the buckets were allocated for
	fixed bool          // this kernel does not change the size of an existing set
}

// counters is the number of counters: one for each kind, followed by one for each shard.
const counters = int(kinds) + shards

func counterOf(k dataplane.Key) int {
	if def := defOf(k.Kind); def != nil && def.split {
		return int(kinds) + shardOf(k.ID)
	}
	return int(setKind(k.Kind))
}

// setKind returns the kind whose set holds objects of kind k.
func setKind(k dataplane.Kind) dataplane.Kind {
	if def := defOf(k); def != nil && def.hashed {
		return k - kindHashed + kindEndpoints
	}
	return k
}

// choose sets the scales of a table that this batch creates, large enough for the
// batch and for what further batches add right after it.
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

// scaleFor returns the scale for n elements and half as many again.
func (s *setDef) scaleFor(n int) int {
	scale := 0
	for s.firstSize() > 0 && n*3/2 > int(s.size(scale)) && scale < maxScale {
		scale++
	}
	return scale
}

// read finds the scales of a table from its sets. A size that belongs to no scale is left
// to the comparison of declarations.
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

// loaded takes over the scales that a Load has found. The kernel does not report for which size
// a set's buckets were allocated: a set whose size differs from the known one counts as created with it.
func (c *setSizes) loaded(f int, found *setSizes) {
	for k, scale := range found.scale[f] {
		if c.scale[f][k] != scale {
			c.scale[f][k], c.made[f][k] = scale, scale
		}
	}
}

// overflow returns a RebuildError if the kernel reports that a set is full. A rebuild holds
// all objects, so choose finds the right size.
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
