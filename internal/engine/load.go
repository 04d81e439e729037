package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
)

// objects are the result of a Load.
type objects []dataplane.Object

// each calls yield for each object; it is an iter.Seq2.
func (o objects) each(yield func(dataplane.Key, string) bool) {
	for _, x := range o {
		if !yield(x.Key, x.Value) {
			return
		}
	}
}

// read returns the objects of a Load. If the error is a RebuildError, they are those of the other families.
func (e *Engine) read(ctx context.Context) (all objects, err error) {
	err = e.p.Driver.Load(ctx, func(k dataplane.Key, v string) { all = append(all, dataplane.Object{Key: k, Value: v}) })
	return all, err
}

// drifted returns the report of one drift.
func drifted(d delta.Drift[dataplane.Key]) Drifted {
	return Drifted{Key: d.Key, Gone: d.Found == "", Foreign: d.Believed == ""}
}

// load reads the kernel and replaces the actual state. A difference from the previous
// actual state is reported as drift if another program caused it.
func (e *Engine) load(ctx context.Context) error {
	t0 := e.p.Now()
	e.turn.Reads++
	reading, stop := e.givingWay(ctx)
	all, err := e.read(reading)
	stop()
	e.turn.Phases[PhaseLoad] += e.p.Now().Sub(t0)
	var rebuild *dataplane.RebuildError
	if errors.As(err, &rebuild) {
		err = nil
	}
	if err = e.judge(reading, err); err != nil {
		return fmt.Errorf("load kernel state: %w", err)
	}
	clear(e.rebuild)
	if rebuild != nil {
		e.mustRebuild(rebuild)
	}
	drift := e.tr.ReplaceActual(all.each, e.p.Now())
	if e.belief.tellsDrift() {
		for _, d := range drift {
			if _, unread := e.rebuild[d.Key.Family]; !unread {
				e.turn.Drift = append(e.turn.Drift, drifted(d))
			}
		}
	}
	e.on(readWell)
	if e.failures >= distrustAfter {
		e.on(distrusted)
		e.mustRebuild(&dataplane.RebuildError{Families: e.p.Families, Why: "distrust"})
	}
	if rebuild != nil {
		e.on(readBroken)
	}
	e.tellAuditors(len(all), e.p.Now().Sub(t0))
	e.turn.Full, e.written = true, 0
	e.audit, e.gaveWay = e.p.Now().Add(e.p.Audit), 0
	return nil
}

// mustRebuild records the families that the next write rebuilds, and logs a warning if the
// rebuild has to wait: a file that cannot be read would otherwise block all writes without
// an explanation.
func (e *Engine) mustRebuild(why *dataplane.RebuildError) {
	for _, f := range why.Families {
		if len(e.waiting) > 0 && e.rebuild[f] != why.Why {
			e.p.Log.Warn("all rules of a family must be rebuilt, which would delete rules of objects that are not read yet: "+
				"the rules stay unchanged and no change is written until every source has been read",
				"family", f, "reason", why.Why, "waiting for", slices.Sorted(maps.Keys(e.waiting)))
		}
		e.rebuild[f] = why.Why
	}
}
