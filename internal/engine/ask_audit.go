package engine

import (
	"context"
	"time"
)

// Audited is what a comparison with the kernel found. What differed is being put right
// when it is told.
type Audited struct {
	Objects int // read
	// Compared were compared one by one, because the sum of all was not that of what we believe.
	Compared int
	Took     time.Duration
	// Missing were deleted, Different changed, Foreign added by somebody else.
	Missing, Different, Foreign int
	Names                       []string // the first of them
}

// maxNames bounds Audited.Names.
const maxNames = 10

// Audit has the kernel compared with what it should hold, as the hourly audit does it,
// and waits for the result. Changes go first, so it may take some tries; ctx ends the
// wait. Any goroutine may call it.
func (e *Engine) Audit(ctx context.Context) (Audited, error) {
	result := make(chan Audited, 1) // size 1: the engine does not wait for who has gone
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

// tellAuditors reports who waits what a Load found, whatever it was done for.
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
