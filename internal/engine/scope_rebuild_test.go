package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
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
				if turn.Complete || len(turn.Decided)+len(turn.Gone) > 0 || turn.Pending == 0 || len(turn.Triggers) > 0 {
					t.Errorf("told as if it were in the kernel: %+v", turn)
				}
			}
			if n := strings.Count(log.String(), "must be rebuilt"); n != 1 || !strings.Contains(log.String(), "waiting for\"=[file]") {
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
			if last := b.last(); !last.Complete || len(last.Decided) != 2 || len(last.Triggers) != 5 {
				t.Errorf("told after the sources were in: %+v", last)
			}
		})
	})
}

var full = &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "a set is full"}

// onceFull refuses the next write because a set is full.
func onceFull(drv *memDriver) {
	drv.fail = func(dataplane.Batch) error { drv.fail = nil; return full }
}

// A rebuild also takes away what was to be deleted, so that nothing is left to do for it.
func TestRebuildTakesWhatWasToBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newBench(before(t), func(p *Params) { p.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 2, 3), svcEvent(2, 80), sliceEvent(2, 4, 5))
			onceFull(b.drv)
			b.put(synced)
			synctest.Wait()
			last, now := b.last(), b.drv.snapshot()
			if last.Err != nil || last.Pending != 0 || b.drv.count().applies != 3 || now[vip(3)] != "" || now[vip(1)] != "goto lb-2" {
				t.Errorf("%d writes with that of the first run, told %+v: %v", b.drv.count().applies, last, now)
			}
			if strings.Contains(log.String(), "must be rebuilt") {
				t.Errorf("a rebuild that need not wait is said to wait: %s", log.String())
			}
		})
	})
}

// A family that a Load can read again need not be rebuilt any more.
func TestLoadEndsTheNeedOfARebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(before(t), nil)
		run(t, b, func() {
			onceFull(b.drv)
			b.put(svcEvent(9, 80), sliceEvent(9, 90), model.Event{Listed: "file"})
			synctest.Wait()
			b.drv.foreign(func(m map[dataplane.Key]string) { delete(m, vip(1)) })
			synctest.Wait()
			if err := b.Inspect(t.Context(), func(View) {
				if len(b.Engine.rebuild) > 0 || b.Engine.belief != believed {
					t.Errorf("belief %d, to be made anew: %v", b.Engine.belief, b.Engine.rebuild)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if now := b.drv.snapshot(); now[vip(9)] != "goto lb-1" || b.drv.count().rebuilds > 0 {
				t.Errorf("%d rebuilds: %v", b.drv.count().rebuilds, now)
			}
		})
	})
}

// A Service in quarantine whose time has come while a rebuild waits does not make
// the loop turn again and again.
func TestTrialWaitsForTheRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		b := newBench(before(t), func(p *Params) { p.Now = func() time.Time { looks.Add(1); return time.Now() } })
		run(t, b, func() {
			b.drv.mu.Lock()
			b.drv.fail = func(batch dataplane.Batch) error {
				for _, o := range batch.Ops {
					if o.Key == vip(9) {
						return &dataplane.InvalidError{Keys: []dataplane.Key{o.Key}, Err: errors.New("refused")}
					}
				}
				return nil
			}
			b.drv.mu.Unlock()
			b.put(svcEvent(9, 80), sliceEvent(9, 90), model.Event{Listed: "file"})
			synctest.Wait()
			onceFull(b.drv)
			b.put(svcEvent(8, 80), sliceEvent(8, 80))
			synctest.Wait()
			looks.Store(0)
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if n := looks.Load(); n > 100 {
				t.Errorf("the clock was read %d times in a minute in which nothing happened", n)
			}
			b.put(synced)
			synctest.Wait()
			if now := b.drv.snapshot(); now[vip(9)] != "goto lb-1" || now[vip(8)] != "goto lb-1" || b.last().Held != 0 {
				t.Errorf("after the sources were in, told %+v: %v", b.last(), now)
			}
		})
	})
}
