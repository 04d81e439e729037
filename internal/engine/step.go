package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// maxPause is the longest pause that Pace makes: kube-proxy's minSyncPeriod.
const maxPause = time.Second

// distrustAfter so many failures in a row everything is made anew.
const distrustAfter = 6

// maxRounds bounds how often one turn looks again after a conflict or a refusal.
const maxRounds = 8

// step is one turn: fold what came, then, if it may, make the kernel agree.
func (e *Engine) step(ctx context.Context) error {
	e.fold()
	now := e.turn.Started
	e.dueAudit(now)
	e.retryHeld(now)
	if !e.ready(now) || now.Before(e.retryAt) || e.pause > 0 && now.Before(e.lastEnd.Add(e.pause)) {
		e.tellProblems()
		return nil
	}
	e.tr.Expire(now)
	e.settleDoubt(ctx)
	if !e.suspect && e.tr.PendingCount() == 0 {
		e.finish(nil)
		return e.afterwards(ctx, nil)
	}
	err := e.reconcile(ctx)
	if err == nil {
		e.freeHeld()
	}
	e.finish(err)
	return e.afterwards(ctx, err)
}

// settleDoubt asks, after a failed write, whether it was done all the same and only
// the answer was lost. Then what we believe is wrong, and what is wanted by now may
// be just that.
func (e *Engine) settleDoubt(ctx context.Context) {
	if !e.doubt {
		return
	}
	e.doubt = false
	before := e.suspect
	e.onAlarm(ctx)
	e.ours = e.ours || e.suspect && !before
}

// reconcile brings the kernel to what is wanted, in bounded rounds.
func (e *Engine) reconcile(ctx context.Context) error {
	var err error
	for range maxRounds {
		if e.suspect {
			err = e.load(ctx)
			switch {
			case err == nil || errors.Is(err, errGaveWay):
			case errors.Is(err, dataplane.ErrInterrupted):
				e.startWatch(ctx)
				continue
			default:
				return err
			}
		}
		if err = e.flush(ctx); err == nil {
			return nil
		}
		var invalid *dataplane.InvalidError
		var rebuild *dataplane.RebuildError
		switch {
		case errors.As(err, &rebuild):
			e.mustRebuild(rebuild)
		case errors.Is(err, dataplane.ErrConflict):
			e.turn.Conflicts++
			e.suspect = true
			e.startWatch(ctx)
		case errors.As(err, &invalid):
			if !e.putAside(invalid) {
				return err
			}
		default:
			return err
		}
	}
	return fmt.Errorf("no quiet moment in %d rounds: %w", maxRounds, err)
}

// load reads what the kernel has; what differs from our belief is drift, unless
// this is the first look.
func (e *Engine) load(ctx context.Context) error {
	t0 := e.p.Now()
	type pair struct {
		key   dataplane.Key
		value string
	}
	var all []pair
	e.turn.Reads++
	ctx, stop := e.givingWay(ctx)
	err := e.p.Driver.Load(ctx, func(k dataplane.Key, v string) { all = append(all, pair{k, v}) })
	stop()
	e.turn.Phases[PhaseLoad] += e.p.Now().Sub(t0)
	var rebuild *dataplane.RebuildError
	if errors.As(err, &rebuild) {
		err = nil
	}
	if err = e.judge(ctx, err); err != nil {
		return fmt.Errorf("load kernel state: %w", err)
	}
	clear(e.rebuild)
	if rebuild != nil {
		e.mustRebuild(rebuild)
	}
	drift := e.tr.ReplaceActual(func(yield func(dataplane.Key, string) bool) {
		for _, p := range all {
			if !yield(p.key, p.value) {
				return
			}
		}
	}, e.p.Now())
	if e.loaded && !e.ours {
		for _, d := range drift {
			if _, unread := e.rebuild[d.Key.Family]; !unread {
				e.turn.Drift = append(e.turn.Drift, Drifted{Key: d.Key, Gone: d.Found == "", Foreign: d.Believed == ""})
			}
		}
	}
	if e.failures >= distrustAfter { // perhaps what is there is beyond repair
		e.mustRebuild(&dataplane.RebuildError{Families: e.p.Families, Why: "distrust"})
	}
	e.turn.Full, e.loaded, e.suspect, e.ours = true, true, false, false
	e.audit, e.gaveWay = e.p.Now().Add(e.p.Audit), 0
	return nil
}

// mustRebuild notes the families that the next write makes anew.
func (e *Engine) mustRebuild(why *dataplane.RebuildError) {
	for _, f := range why.Families {
		e.rebuild[f] = why.Why
	}
}

// flush applies what is pending, in one transaction if it fits.
func (e *Engine) flush(ctx context.Context) error {
	t0 := e.p.Now()
	defer func() { e.turn.Phases[PhaseApply] += e.p.Now().Sub(t0) }()
	for _, f := range slices.Sorted(maps.Keys(e.rebuild)) {
		if err := e.anew(ctx, f); err != nil {
			return err
		}
	}
	chunks := e.chunks(e.tr.Pending(e.canPrune()))
	for i, c := range chunks {
		if err := e.apply(ctx, c, later(chunks[i+1:])); err != nil {
			return err
		}
	}
	return nil
}

// anew rebuilds one family.
func (e *Engine) anew(ctx context.Context, f model.Family) error {
	ofFamily := func(k dataplane.Key) bool { return k.Family == f }
	all := e.tr.Anew(ofFamily)
	if len(all) == 0 {
		delete(e.rebuild, f)
		return nil
	}
	ops := make([]dataplane.Op, len(all))
	for i, d := range all {
		ops[i] = dataplane.Op(d)
	}
	done, err := e.p.Driver.Apply(ctx, dataplane.Batch{Ops: ops, Rebuild: []model.Family{f}})
	e.turn.Batches++
	if err != nil {
		return err
	}
	e.turn.Operations += done.Operations
	e.turn.Rebuilt = append(e.turn.Rebuilt, Rebuilt{Family: f, Why: e.rebuild[f]})
	delete(e.rebuild, f)
	e.tr.CommitAnew(ofFamily, all)
	return nil
}

// apply writes one chunk, or finds the object the kernel objects to: when the
// kernel does not say which it is, halves are tried. Objects come after what they
// refer to, so that a front half always stands by itself.
func (e *Engine) apply(ctx context.Context, c []diff, after iter.Seq[dataplane.Op]) error {
	ops := make([]dataplane.Op, len(c))
	for i, d := range c {
		ops[i] = dataplane.Op(d)
	}
	done, err := e.p.Driver.Apply(ctx, dataplane.Batch{Ops: ops, Later: after})
	e.turn.Batches++
	if err == nil {
		e.turn.Operations += done.Operations
		e.tr.Commit(c)
		return nil
	}
	var invalid *dataplane.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Keys) > 0 {
		return err
	}
	if len(c) == 1 {
		return &dataplane.InvalidError{Keys: []dataplane.Key{c[0].Key}, Err: invalid.Err}
	}
	if err := e.apply(ctx, c[:len(c)/2], after); err != nil {
		return err
	}
	return e.apply(ctx, c[len(c)/2:], after)
}

// tellProblems tells what is wrong with the input although nothing may be written
// yet: whoever waits for the sources must know why.
func (e *Engine) tellProblems() {
	t := &e.turn
	if len(t.Problems)+len(t.Well) == 0 {
		return
	}
	if e.p.OnTurn != nil {
		now := e.p.Now()
		e.p.OnTurn(&Turn{Started: t.Started, Done: now, Waits: true, Problems: t.Problems, Well: t.Well})
	}
	t.Problems, t.Well = nil, nil
}

// finish tells the world about the turn and prepares the next.
func (e *Engine) finish(err error) {
	t := &e.turn
	if !t.worthTelling(err) {
		return
	}
	now := e.p.Now()
	t.Done, t.Err, t.Complete = now, err, e.canPrune()
	t.Pending, t.Held = e.tr.PendingCount(), len(e.held)
	t.Services, t.Slices, t.Endpoints = e.st.Counts()
	t.Decided = newest(t.Decided)
	if err == nil {
		e.lastEnd, e.pause = now, max(e.p.MinSync, min(time.Duration(e.p.Pace)*t.Phases[PhaseApply], maxPause))
		t.Waiting = time.Time{}
	}
	if e.p.OnTurn != nil {
		e.p.OnTurn(t)
	}
	next := Turn{}
	if err != nil { // not in the kernel yet: the next good turn will tell
		next.Triggers, next.Decided, next.Gone = t.Triggers, t.Decided, t.Gone
		next.View, next.Node, next.Waiting = t.View, t.Node, t.Waiting
	}
	e.turn = next
}

// newest keeps the last decision of each Service: there are several when a
// commit failed in between, and an old one must not follow a newer.
func newest(list []Decided) []Decided {
	if len(list) < 2 {
		return list
	}
	last := make(map[model.ServiceKey]int, len(list))
	for i := range list {
		last[list[i].Key] = i
	}
	if len(last) == len(list) {
		return list
	}
	kept := list[:0]
	for i, d := range list {
		if last[d.Key] == i {
			kept = append(kept, d)
		}
	}
	clear(list[len(kept):])
	return kept
}

func (t *Turn) worthTelling(err error) bool {
	return err != nil || t.Operations > 0 || t.Full || t.ServiceEvents+t.SliceEvents > 0 ||
		len(t.Problems)+len(t.Well) > 0 || t.View != nil || len(t.Decided) > 0 || len(t.Quarantined) > 0
}

// afterwards sets the retry, or gives the error that ends the engine.
func (e *Engine) afterwards(ctx context.Context, err error) error {
	if err == nil {
		e.failures, e.retryAt = 0, time.Time{}
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, dataplane.ErrUnsupported) || errors.Is(err, dataplane.ErrNotOurs) && !e.loaded {
		return err
	}
	e.failures++
	e.doubt = !dataplane.NothingDone(err)
	e.retryAt = e.p.Now().Add(backoff(e.failures))
	e.suspect = e.suspect || e.failures >= 3 // perhaps we are wrong about what is there
	return nil
}
