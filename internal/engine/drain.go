package engine

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// drainPause is how often the driver is asked which lingering objects are still in use. To ask costs a read for each
// virtual server that has some.
const drainPause = 15 * time.Second

// drain lets go of what lingers and is used no more. Only what is in the kernel as we believe can be asked about.
func (e *Engine) drain(ctx context.Context, now time.Time) {
	d, _ := e.p.Driver.(dataplane.Drainer)
	if due := e.nextDrain(); due.IsZero() || due.After(now) {
		return
	}
	e.drained = now
	e.turn.Reads++
	done, err := d.Drained(ctx, slices.Collect(e.tr.Lingering()))
	if err != nil {
		e.p.Log.Warn("cannot ask the kernel which endpoints that are gone still have connections; they stay until their time is over", "error", err)
	}
	for _, k := range done {
		e.tr.Release(k)
	}
}

// nextDrain reports when the driver is to be asked next (zero: nothing lingers, or it cannot be asked).
func (e *Engine) nextDrain() time.Time {
	if _, can := e.p.Driver.(dataplane.Drainer); !can || e.belief != believed || e.tr.NextExpiry().IsZero() {
		return time.Time{}
	}
	return e.drained.Add(drainPause)
}
