package engine

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// One file cannot be read, and the table is of another layout: nothing can be
// written. The log says so, nobody is told that it was, and the engine sleeps.
func TestRebuildThatWaitsIsNotToldAsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		was := drv.snapshot()
		drv.failLoad = func() error {
			return &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "another layout"}
		}
		var log bytes.Buffer
		b := newBench(drv, func(p *Params) { p.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 2, 3), svcEvent(9, 80), sliceEvent(9, 90), model.Event{Listed: "file"})
			synctest.Wait()
			b.put(sliceEvent(1, 2))
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if !maps.Equal(drv.snapshot(), was) {
				t.Fatalf("changed before the sources were in: %v", drv.snapshot())
			}
			for _, turn := range b.turns() {
				if turn.Complete || len(turn.Decided)+len(turn.Gone) > 0 || turn.Pending == 0 || len(turn.Triggers) > 0 || turn.Waiting.IsZero() {
					t.Errorf("told as if it were in the kernel: %+v", turn)
				}
			}
			if n := strings.Count(log.String(), "must be made anew"); n != 1 || !strings.Contains(log.String(), "waiting for\"=[file]") {
				t.Errorf("said %d times: %s", n, log.String())
			}
			if n := len(b.turns()); n > 4 {
				t.Errorf("%d turns in a minute in which two things happened", n)
			}
			b.put(synced)
			synctest.Wait()
			if now := drv.snapshot(); now[vip(9)] != "goto lb-1" || now[vip(2)] != "" {
				t.Fatalf("after the sources were in: %v", now)
			}
			if last := b.last(); !last.Complete || len(last.Decided) != 2 || len(last.Triggers) != 5 || !last.Waiting.IsZero() {
				t.Errorf("told after the sources were in: %+v", last)
			}
		})
	})
}
