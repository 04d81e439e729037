package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// errNothingRead reports that there is no state yet with which the kernel could be compared.
var errNothingRead = errors.New("the kernel has not been read yet, or must be read again")

// Look compares the kernel with the actual state that the tracker assumes, like an audit,
// and repairs nothing. The drift is repaired by an audit, or at once if an alarm reports it.
// Look reads concurrently with the engine, so that no change waits
// for it. If a change disturbs the read, Look retries until ctx ends; then it returns the
// error of the last attempt. Any goroutine may call it.
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

// comparable reports whether the engine has a state with which the kernel can be compared.
func (e *Engine) comparable() bool {
	return e.belief == believed || e.belief == due || e.belief == foreign
}
