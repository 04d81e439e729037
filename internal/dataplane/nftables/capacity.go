package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Sets are created with a size, because only then does the kernel use its fixed hash
// table. Dumps of its resizable table are wrong while the kernel rehashes it in the background;
// walks of that table (dumps, checks of new rules) and large inserts take twice as long
// (measured on 6.18: docs/design/nftables.md).
//
// A size is a limit, and the kernel allocates the buckets for it at once: each costs
// 8 bytes, and one visit for each message of a dump. So a set starts small and doubles
// when it is full. Since 6.5 the kernel can raise the limit of an existing set; the
// number of buckets does not change, so the driver does this at most maxGrowth times.
// After that, and on kernels before 6.5, a rebuild creates a larger set.

// maxGrowth is how often a set doubles before a rebuild replaces it. A full set then
// has six elements in a bucket; it was created for three quarters of one.
const maxGrowth = 3

// maxScale is the largest set: 12 million endpoint slots in all shards, 1.5 million Frontends.
const maxScale = 8

// firstSize returns the size of a set at scale 0, or 0 if the set is not hashed. It is
// three quarters of a power of two: the kernel allocates 4/3 of the size in
// buckets, rounded up to a power of two.
func (s *setDef) firstSize() uint32 {
	switch {
	case s.shape == shapeRanges || s.shape == shapeAllowed || s.ident == identRange:
		return 0
	case s.split:
		return 3_072 // in each shard
	case s.kind == kindNodePortIP:
		return 768
	}
	return 6_144
}

// size returns the size of a set at a scale.
func (s *setDef) size(scale int) uint32 { return s.firstSize() << scale }

// setSizes is the state of the sizes of all sets. All shards of a kind have the same
// size, which the fullest shard determines.
type setSizes struct {
	scale [2][kinds]int
	made  [2][kinds]int // the scale for which the kernel allocated the buckets
	fixed bool          // this kernel cannot change the size of an existing set
}

// counters is how many counters choose needs: one for each kind, then one for each shard.
const counters = int(kinds) + shards

// counterOf returns the index of the counter of a key.
func counterOf(k dataplane.Key) int {
	if def := defOf(k.Kind); def != nil && def.split {
		return int(kinds) + shardOf(k.ID)
	}
	return int(setKind(k.Kind))
}

// setKind returns the kind whose set holds the objects of k.
func setKind(k dataplane.Kind) dataplane.Kind {
	if def := defOf(k); def != nil && def.hashed {
		return k - kindHashed + kindEndpoints
	}
	return k
}

// choose sets the scales of a table that this batch creates. It counts the elements of
// the batch and of the batches that follow immediately (b.Later).
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

// countOf returns how many elements an op adds to its set.
func countOf(o *dataplane.Op) int {
	if def := defOf(o.Key.Kind); def != nil && (def.shape == shapePool || def.shape == shapeLive) {
		return len(o.Want) / def.slotWidth(o.Key.Family)
	}
	return 1
}

// scaleFor returns the scale for n elements with 50 % of spare room.
func (s *setDef) scaleFor(n int) int {
	scale := 0
	for s.firstSize() > 0 && n*3/2 > int(s.size(scale)) && scale < maxScale {
		scale++
	}
	return scale
}

// read sets the scales from the actual sizes of a table's sets. A size that matches no
// scale is ignored here: the comparison of declarations reports it.
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

// loaded takes over the scales that a Load has read. The kernel does not report the
// number of buckets: a set whose size differs from the known one is assumed to have
// been created with its actual size.
func (c *setSizes) loaded(f int, found *setSizes) {
	for k, scale := range found.scale[f] {
		if c.scale[f][k] != scale {
			c.scale[f][k], c.made[f][k] = scale, scale
		}
	}
}

// overflow returns an error that requests a rebuild if the kernel reported a set as
// full, nil otherwise. A rebuild batch holds all objects, so choose can compute the right size.
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
