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
// at once where an alarm tells of it. It reads beside the engine where the driver can;
// else it gives way to changes. Where a change was in the way it tries again until ctx
// ends; then the error says what was in the way. Any goroutine may call it.
func (e *Engine) Look(ctx context.Context) (Audited, error) {
	surveyor, beside := e.p.Driver.(dataplane.Surveyor)
	for {
		var a Audited
		var err error
		if beside {
			a, err = e.survey(ctx, surveyor)
			if beside = !errors.Is(err, dataplane.ErrUnsupported); !beside {
				continue
			}
		} else if asked := e.Inspect(ctx, func(View) { a, err = e.look(ctx) }); asked != nil {
			return Audited{}, asked
		}
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

// comparable tells whether there is anything to compare the kernel with.
func (e *Engine) comparable() bool {
	return e.belief == believed || e.belief == due || e.belief == foreign
}

// look does it once, on the engine's goroutine. The driver takes what it has read for
// known, so the engine must not forget that something differs.
func (e *Engine) look(ctx context.Context) (Audited, error) {
	if !e.comparable() {
		return Audited{}, errNothingRead
	}
	t0 := e.p.Now()
	reading, stop := e.untilMail(ctx)
	all, err := e.read(reading)
	stop()
	var rebuild *dataplane.RebuildError
	if errors.As(err, &rebuild) {
		e.on(changed)
		a := Audited{Objects: len(all), Took: e.p.Now().Sub(t0), Different: 1, Names: []string{rebuild.Error()}}
		return a, nil
	}
	if err != nil {
		if context.Cause(reading) == errGaveWay {
			err = errGaveWay
		}
		return Audited{}, err
	}
	var drift []Drifted
	for _, d := range e.tr.Drift(all.each) {
		drift = append(drift, drifted(d))
	}
	if len(drift) > 0 {
		e.on(changed)
	}
	return e.audited(len(all), e.p.Now().Sub(t0), drift), nil
}
