package nftables

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Sets are made with a size, because only then does the kernel take its fixed
// hash: dumps of the growing one are wrong while it rehashes in the background,
// walks of it (dumps, checks of new rules) take twice as long, and so do big
// inserts (measured on 6.18: docs/design/dataplane.md). A size is a limit, so
// all sets of a table grow together, by a factor of four, when one is full: the
// table is then built anew in one transaction.

// maxScale is the largest table: 6 million endpoint slots.
const maxScale = 4

// firstSize is a set's size at scale 0. Three quarters of a power of two: the
// kernel makes a bucket for each quarter more, rounded up.
func (s *setDef) firstSize() uint32 {
	switch {
	case s.shape == shapeRanges || s.shape == shapeAllowed || s.shape == shapeAffinity || s.ident == identRange:
		return 0 // not hashed, or bounded otherwise
	case s.kind == kindEndpoints:
		return 24_576
	case s.kind == kindNodePortIP:
		return 768
	}
	return 6_144
}

func (s *setDef) size(scale int) uint32 { return s.firstSize() << (2 * scale) }

// capacity knows how large the tables are and should be.
type capacity struct {
	scale   [2]int
	full    [2]bool       // grow before anything else
	expect  [2][kinds]int // what Render gave before the first Apply: a full build comes in chunks, but should not grow in steps
	settled bool          // the first Apply is over
}

// rendered counts objects until there is something better to go by.
func (c *capacity) rendered(k dataplane.Key, n int) {
	if !c.settled {
		c.expect[famIndex(k.Family)][k.Kind] += n
	}
}

// choose sets the scale of a table that is about to be made by these ops.
func (c *capacity) choose(f int, p *plan, ops []dataplane.Op) {
	least := 0
	if c.full[f] {
		least = min(c.scale[f]+1, maxScale)
	}
	count := c.expect[f]
	for k := firstElement; k < kinds; k++ {
		have := 0
		for _, i := range p.of(f, k) {
			have += countOf(&ops[i])
		}
		count[k] = max(count[k], have)
	}
	c.scale[f] = max(least, scaleFor(&count))
}

func countOf(o *dataplane.Op) int {
	if def := defOf(o.Key.Kind); def != nil && def.shape == shapePool {
		return len(o.Want) / def.slotWidth(o.Key.Family)
	}
	return 1
}

// scaleFor leaves half as much again as room.
func scaleFor(count *[kinds]int) int {
	for scale := range maxScale {
		fits := true
		for i := range setDefs {
			size := int(setDefs[i].size(scale))
			fits = fits && (size == 0 || count[setDefs[i].kind]*3/2 <= size)
		}
		if fits {
			return scale
		}
	}
	return maxScale
}

// read finds the scale of a table from one of its sets.
func (c *capacity) read(f model.Family, sets []nft.Set) {
	for i := range sets {
		def := defNamed(sets[i].Ref.Name)
		if def == nil || def.firstSize() == 0 {
			continue
		}
		for scale := range maxScale + 1 {
			if def.size(scale) == sets[i].Size {
				c.scale[famIndex(f)] = scale
				return
			}
		}
	}
}

// overflow notes the table in which a set is full, if that is what err says.
func (c *capacity) overflow(err error, ops []dataplane.Op) bool {
	var refused *nft.BatchError
	if !errors.As(err, &refused) {
		return false
	}
	found := false
	for _, e := range refused.Errors {
		if e.Errno != unix.ENFILE || len(e.Tags) == 0 || e.Tags[0] < 0 || e.Tags[0] >= len(ops) {
			continue
		}
		if f := famIndex(ops[e.Tags[0]].Key.Family); c.scale[f] < maxScale {
			c.full[f], found = true, true
		}
	}
	return found
}
