package app

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/engine"
)

// driftLog writes a line about a repair, and then at most one a minute that counts the repairs since: another program that
// writes ten times a second would else fill the log. Metrics count each repair.
type driftLog struct {
	log *slog.Logger

	mu      sync.Mutex
	running bool // a minute has begun
	repairs int  // in it, without a line of their own
	objects int
	first   string
}

const driftWindow = time.Minute

// say records a sync that repaired drift; first is the name of the first object.
func (d *driftLog) say(t *engine.Turn, first string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running {
		if d.repairs == 0 {
			d.first = first
		}
		d.repairs++
		d.objects += len(t.Drift)
		return
	}
	d.running = true
	time.AfterFunc(driftWindow, d.sumUp)
	d.log.Warn("repaired drift caused by another program", "objects", len(t.Drift), "first", first,
		"operations", t.Operations, "took", t.Done.Sub(t.Started).Round(time.Microsecond))
}

// sumUp ends a minute, logs its repairs, and begins the next one if there were any.
func (d *driftLog) sumUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running = d.repairs > 0; !d.running {
		return
	}
	d.log.Warn("repaired repeated drift: another program keeps changing the rules", "times", d.repairs, "objects", d.objects, "first", d.first, "within", driftWindow)
	d.repairs, d.objects = 0, 0
	time.AfterFunc(driftWindow, d.sumUp)
}
