package engine

import (
	"context"
	"errors"
	"time"
)

// A Load takes a second at 50 000 Services, and the loop does nothing else
// meanwhile. One that is only due by the clock need not make a change wait for it:
// it is given up when an event comes, and tried again soon. What was read of it is
// forgotten; a Load that failed leaves everything as it was.

// errGaveWay ends a Load that gave way to a change.
var errGaveWay = errors.New("the audit gave way to a change")

const (
	// maxGaveWay bounds how often one audit gives way: under a stream of changes it
	// makes them wait at last, as often as it is due.
	maxGaveWay = 30
	// auditPause comes before the next try.
	auditPause = 2 * time.Second
	// mailPause is how often a Load looks whether it must give way. The bell is
	// left for the loop.
	mailPause = 2 * time.Millisecond
)

// dueAudit wants the kernel compared if it is time. Changes go first.
func (e *Engine) dueAudit(now time.Time) {
	if e.belief != believed || e.audit.After(now) {
		return
	}
	if e.gaveWay >= maxGaveWay {
		e.on(auditOverdue)
		return
	}
	e.on(auditDue)
	if e.turn.events > 0 || !e.owed.IsZero() {
		e.postponeAudit()
	}
}

func (e *Engine) postponeAudit() {
	e.on(gaveWay)
	e.gaveWay++
	e.audit = e.p.Now().Add(auditPause)
}

// givingWay returns a context for a Load: if that is a routine one, it ends when a
// change comes. stop must be called.
func (e *Engine) givingWay(ctx context.Context) (_ context.Context, stop func()) {
	if e.belief != due {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(mailPause)
		defer tick.Stop()
		for e.p.Mailbox.Len() == 0 {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel(errGaveWay)
	}()
	return ctx, func() { cancel(nil); <-done }
}

// judge says whether a Load under that context failed, or only gave way.
func (e *Engine) judge(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errGaveWay {
		e.postponeAudit()
		return errGaveWay
	}
	return err
}
