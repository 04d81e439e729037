package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// errNothingRead says that there is nothing yet that the kernel could be compared with.
var errNothingRead = errors.New("the kernel has not been read yet, or is about to be read anew")

// Look compares the kernel with what it should hold, as an audit does, and repairs
// nothing. What differs is repaired when the kernel is written next, or by an audit, or
// at once where an alarm tells of it. It reads beside the engine, so that no change waits
// for it. Where a change was in the way it tries again until ctx ends; then the error says
// what was in the way. Any goroutine may call it.
func (e *Engine) Look(ctx context.Context) (Audited, error) {
	for {
		a, err := e.survey(ctx)
		if !errors.Is(err, errGaveWay) && !errors.Is(err, dataplane.ErrInterrupted) && !errors.Is(err, errNothingRead) {
			return a, err
		}
		select {
		case <-time.After(auditPause):
		case <-ctx.Done():
			return Audited{}, err
		}
	}
}

// comparable reports whether there is anything to compare the kernel with.
func (e *Engine) comparable() bool {
	return e.belief == believed || e.belief == due || e.belief == foreign
}
