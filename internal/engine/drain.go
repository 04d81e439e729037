package engine

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// drainPause is the interval at which the driver is queried for the lingering objects that are still in use. A query costs
// a read for each virtual server that has lingering objects.
const drainPause = 15 * time.Second

// drain releases the lingering objects that are no longer in use. The query needs an actual state that is in sync.
func (e *Engine) drain(ctx context.Context, now time.Time) {
	d, _ := e.p.Driver.(dataplane.Drainer)
	if due := e.nextDrain(); due.IsZero() || due.After(now) {
		return
	}
	e.drained = now
	e.turn.Reads++
	done, err := d.Drained(ctx, slices.Collect(e.tr.Lingering()))
	if err != nil {
		e.p.Log.Warn("cannot read which removed endpoints still have connections; they are kept until their drain period ends", "error", err)
	}
	for _, k := range done {
		e.tr.Release(k)
	}
}

// nextDrain returns when the driver is to be queried next (zero: no object lingers, or the driver supports no query).
func (e *Engine) nextDrain() time.Time {
	if _, can := e.p.Driver.(dataplane.Drainer); !can || e.belief != believed || e.tr.NextExpiry().IsZero() {
		return time.Time{}
	}
	return e.drained.Add(drainPause)
}
