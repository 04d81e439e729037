package engine

import (
	"context"
	"errors"
	"time"
)

// A Load takes a second at 50 000 Services, and it blocks the loop. A routine Load,
// which is due by the clock only, must not delay a change: it is preempted when an event
// comes, and retried after auditPause. The part that was read is discarded; a Load that
// failed leaves the actual state unchanged.

// errGaveWay ends a Load that was preempted by a change.
var errGaveWay = errors.New("the audit was preempted by a change")

const (
	// maxGaveWay bounds how often one audit is preempted. Under a stream of changes,
	// each audit that is due finally runs and the changes wait for it.
	maxGaveWay = 30
	// auditPause is the pause before the retry of a preempted audit.
	auditPause = 2 * time.Second
	// mailPause is the interval at which a Load checks the mailbox for changes. It
	// leaves the notify channel to the loop.
	mailPause = 2 * time.Millisecond
)

// dueAudit requests an audit if one is due. Changes go first.
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

// postponeAudit ends an audit that is preempted, and makes the next one due after auditPause.
func (e *Engine) postponeAudit() {
	e.on(gaveWay)
	e.gaveWay++
	e.audit = e.p.Now().Add(auditPause)
}

// givingWay returns a context for a Load. The context of a routine Load ends when a
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

// judge returns errGaveWay, and postpones the audit, if a Load under that context was preempted. Otherwise it returns err.
func (e *Engine) judge(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errGaveWay {
		e.postponeAudit()
		return errGaveWay
	}
	return err
}
