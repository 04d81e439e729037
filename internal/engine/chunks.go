package engine

import (
	"iter"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
)

type diff = delta.Diff[dataplane.Key]

// chunks cuts pending differences into transactions of about ChunkOps kernel
// operations, so that other programs' transactions wait 20 ms for ours at a cold
// start, not seconds (dataplane.md E9, #139328). Order is kept: an object comes
// after what it refers to, deletions come last.
func (e *Engine) chunks(all []diff) [][]diff {
	var out [][]diff
	start, size := 0, 0
	for i, d := range all {
		n := e.cost(d)
		if size > 0 && size+n > e.p.ChunkOps {
			out = append(out, all[start:i])
			start, size = i, 0
		}
		size += n
	}
	if start < len(all) {
		out = append(out, all[start:])
	}
	return out
}

// later gives what comes after a chunk, nil if nothing does.
func later(chunks [][]diff) iter.Seq[dataplane.Op] {
	if len(chunks) == 0 {
		return nil
	}
	return func(yield func(dataplane.Op) bool) {
		for _, c := range chunks {
			for i := range c {
				if !yield(dataplane.Op(c[i])) {
					return
				}
			}
		}
	}
}

// cost is an upper bound of the kernel operations of one difference.
func (e *Engine) cost(d diff) int {
	if w := e.p.Driver.Width(d.Key); w > 0 {
		return max(len(d.Have), len(d.Want)) / w
	}
	return 1
}
