package engine

import (
	"context"
	"time"
)

// Audited is the result of a comparison with the kernel. The repair of the drift is in
// progress when an audit reports it.
type Audited struct {
	Objects int // read
	// Compared is how many were compared one by one, because the sum of all was not that of the actual state.
	Compared int
	Took     time.Duration
	// Missing were deleted, Different changed, Foreign added by another program.
	Missing, Different, Foreign int
	Names                       []string // the first of them
}

// maxNames bounds Audited.Names.
const maxNames = 10

// Audit requests a comparison of the kernel with the desired state, like the hourly audit,
// and returns its result. Changes preempt it, so it may take several retries; ctx ends
// the wait. Any goroutine may call it.
func (e *Engine) Audit(ctx context.Context) (Audited, error) {
	result := make(chan Audited, 1) // size 1: the engine does not block on a caller that has returned
	select {
	case e.wanted <- result:
	case <-ctx.Done():
		return Audited{}, ctx.Err()
	}
	select {
	case a := <-result:
		return a, nil
	case <-ctx.Done():
		return Audited{}, ctx.Err()
	}
}

// hurryAudit makes the audit due now.
func (e *Engine) hurryAudit(to chan<- Audited) {
	e.auditors = append(e.auditors, to)
	e.audit = e.p.Now()
}

// tellAuditors sends the result of a Load, whatever its reason was, to the callers that wait for one.
func (e *Engine) tellAuditors(objects int, took time.Duration) {
	if len(e.auditors) == 0 {
		return
	}
	a := e.audited(objects, took, e.turn.Drift)
	for _, to := range e.auditors {
		to <- a
	}
	e.auditors = nil
}

// audited returns the result of a comparison of a number of objects.
func (e *Engine) audited(objects int, took time.Duration, drift []Drifted) Audited {
	a := Audited{Objects: objects, Took: took}
	for _, d := range drift {
		how := "different: "
		switch {
		case d.Gone:
			a.Missing++
			how = "missing: "
		case d.Foreign:
			a.Foreign++
			how = "foreign: "
		default:
			a.Different++
		}
		if len(a.Names) < maxNames {
			a.Names = append(a.Names, how+e.p.Driver.KeyString(d.Key))
		}
	}
	return a
}
