package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// maxRounds bounds how often one sync reads and writes again after a conflict.
const maxRounds = 8

// After this many failed syncs in a row the kernel is read again, because the actual
// state may be stale. After more failures everything is rebuilt.
const (
	readAfter     = 3
	distrustAfter = 6
)

// step is one sync: it folds the new events into state and then, if the scope and the gate allow it, reconciles the kernel.
func (e *Engine) step(ctx context.Context) error {
	e.fold()
	now := e.turn.Started
	e.dueAudit(now)
	if at := e.gate(now); at.After(now) {
		e.owed = at
		e.tellProblems()
		return nil
	}
	e.owed = time.Time{}
	scope := e.scope(now)
	e.departed(now)
	e.drain(ctx, now) // releases objects that began to linger before this sync
	err := e.readLeftovers(ctx, scope)
	if err == nil {
		e.decideDirty(scope)
		scope = e.reviewLeftovers(scope)
		e.retryHeld(scope)
		e.tr.Expire(now)
		err = e.reconcile(ctx, scope)
	}
	switch {
	case errors.Is(err, errRebuildWaits): // the kernel is unchanged, so no change is reported
		e.postponeTrials()
		scope, err = nothing, nil
	case err == nil:
		e.freeHeld()
	}
	e.finish(scope, err)
	return e.afterwards(ctx, err)
}

// reconcile brings the kernel to the desired state, in a bounded number of rounds.
func (e *Engine) reconcile(ctx context.Context, s scope) error {
	e.announce()
	if e.belief == doubtful {
		e.ask(ctx)
	}
	var err error
	for round := 0; round < maxRounds; {
		if e.belief.mustRead() {
			err = e.load(ctx)
			switch {
			case err == nil || errors.Is(err, errGaveWay):
			case errors.Is(err, dataplane.ErrInterrupted):
				e.startWatch(ctx)
				round++
				continue
			default:
				e.on(readFailed)
				return err
			}
		}
		if err = e.flush(ctx, s); err == nil {
			return nil
		}
		again, aside := e.answer(ctx, err)
		if !again {
			return err
		}
		if !aside {
			round++
		}
	}
	return fmt.Errorf("concurrent changes in each of %d attempts: %w", maxRounds, err)
}

// answer handles a failed write. It reports whether to write again, and whether the
// reason is that Services were quarantined: such retries need no limit, they terminate.
func (e *Engine) answer(ctx context.Context, err error) (again, aside bool) {
	var rebuild *dataplane.RebuildError
	var invalid *dataplane.InvalidError
	isConflict := errors.Is(err, dataplane.ErrConflict)
	switch {
	case errors.As(err, &rebuild):
		e.on(writeTooBig)
		e.mustRebuild(rebuild)
		return true, false
	case errors.As(err, &invalid) && (!isConflict || e.written == 0): // else the cause may be a stale actual state
		aside, eased := e.putAside(invalid)
		switch {
		case isConflict:
			e.on(conflict)
		case errors.Is(err, dataplane.ErrInPart):
			e.on(writtenInPart)
		}
		return aside || eased, aside
	case isConflict:
		e.turn.Conflicts++
		e.on(conflict)
		e.startWatch(ctx)
		return true, false
	}
	return false, false
}

// afterwards schedules the next retry, or returns the error that ends the engine.
func (e *Engine) afterwards(ctx context.Context, err error) error {
	if err == nil {
		e.failures, e.retryAt = 0, time.Time{}
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, dataplane.ErrNotOurs) && e.belief == unknown {
		return err
	}
	e.failures++
	e.retryAt = e.p.Now().Add(backoff(e.failures))
	e.owed = e.retryAt
	if !dataplane.NothingDone(err) {
		e.on(writeUnsure)
	}
	if e.failures >= readAfter {
		e.on(failedOften)
	}
	return nil
}
