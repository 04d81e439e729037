package engine

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
)

type diff = delta.Diff[dataplane.Key]

// errRebuildWaits ends a sync that could write nothing: some families must be rebuilt,
// and that would delete objects that the sources may not have delivered yet.
var errRebuildWaits = errors.New("the rules must be rebuilt, which waits until the sources are read")

// flush applies the pending changes, in one transaction if they fit. Families that must
// be rebuilt come first, each in one transaction. None is rebuilt before all sources are synced.
func (e *Engine) flush(ctx context.Context, s scope) error {
	t0 := e.p.Now()
	defer func() { e.turn.Phases[PhaseApply] += e.p.Now().Sub(t0) }()
	if e.belief == broken {
		if s != everything {
			return errRebuildWaits
		}
		for _, f := range slices.Sorted(maps.Keys(e.rebuild)) {
			if err := e.anew(ctx, f); err != nil {
				return err
			}
		}
		e.on(rebuilt)
	}
	if e.tr.PendingCount() == 0 {
		return nil
	}
	chunks := e.chunks(e.writable(s))
	for i, c := range chunks {
		if err := e.apply(ctx, dataplane.Batch{Ops: ops(c), Later: later(chunks[i+1:])}); err != nil {
			return err
		}
		e.tr.Commit(c)
	}
	return nil
}

// anew rebuilds one family.
func (e *Engine) anew(ctx context.Context, f model.Family) error {
	ofFamily := func(k dataplane.Key) bool { return k.Family == f }
	if all := e.tr.Anew(ofFamily); len(all) > 0 {
		if err := e.apply(ctx, dataplane.Batch{Ops: ops(all), Rebuild: []model.Family{f}}); err != nil {
			return err
		}
		e.turn.Rebuilt = append(e.turn.Rebuilt, Rebuilt{Family: f, Why: e.rebuild[f]})
		e.tr.CommitAnew(ofFamily, all)
	}
	delete(e.rebuild, f)
	return nil
}

// apply applies one batch and counts it in the Turn. The caller updates the tracker.
func (e *Engine) apply(ctx context.Context, b dataplane.Batch) error {
	e.tellSurveys(b.Ops)
	done, err := e.p.Driver.Apply(ctx, b)
	e.turn.Batches++
	if err != nil {
		return err
	}
	e.written++
	e.turn.Operations += done.Operations
	return nil
}

// ops returns the operations of a list of pending changes.
func ops(list []diff) []dataplane.Op {
	out := make([]dataplane.Op, len(list))
	for i, d := range list {
		out[i] = dataplane.Op{Key: d.Key, Have: d.Have, Want: d.Want}
	}
	return out
}

// chunks splits the pending changes into transactions of about ChunkOps kernel
// operations, so that transactions of other programs wait 20 ms for the agent's at a cold
// start, not seconds (kubernetes#139328). The order is kept: an object comes
// after the objects that it refers to, deletions come last. The updates of one Service in
// one sync are never split: packets would meet a pool that has shrunk through a rule
// that has not.
func (e *Engine) chunks(all []diff) [][]diff {
	var out [][]diff
	start, size := 0, 0
	for i := 0; i < len(all); {
		end, n := i+1, e.cost(all[i])
		for end < len(all) && together(&all[i], &all[end]) {
			n += e.cost(all[end])
			end++
		}
		if size > 0 && size+n > e.p.ChunkOps {
			out = append(out, all[start:i])
			start, size = i, 0
		}
		size += n
		i = end
	}
	if start < len(all) {
		out = append(out, all[start:])
	}
	return out
}

// together reports whether two changes are parts of one update and must not be split.
func together(a, b *diff) bool {
	return a.Group == b.Group && a.Have != "" && a.Want != "" && b.Have != "" && b.Want != ""
}

// later returns the operations that follow a chunk, nil if there are none.
func later(chunks [][]diff) iter.Seq[dataplane.Op] {
	if len(chunks) == 0 {
		return nil
	}
	return func(yield func(dataplane.Op) bool) {
		for _, c := range chunks {
			for _, d := range c {
				if !yield(dataplane.Op{Key: d.Key, Have: d.Have, Want: d.Want}) {
					return
				}
			}
		}
	}
}

// cost returns an upper bound of the kernel operations of one pending change.
func (e *Engine) cost(d diff) int {
	if w := e.p.Driver.Width(d.Key); w > 0 {
		return max(len(d.Have), len(d.Want)) / w
	}
	return 1
}
