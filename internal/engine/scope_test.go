package engine

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

func vip(i int) dataplane.Key {
	return key(kindVerdict, svcEvent(i, 80).Service.Value.ClusterIPs[0].String()+":80/TCP")
}

// before makes a kernel as a former run left it: Services 1 to 3, two endpoints each.
func before(t *testing.T) *memDriver {
	drv := newMemDriver()
	first := newBench(drv, nil)
	run(t, first, func() {
		for i := 1; i <= 3; i++ {
			first.put(svcEvent(i, 80), sliceEvent(i, 2*i, 2*i+1))
		}
		first.put(synced)
		synctest.Wait()
	})
	return drv
}

// The API server lists Services and forbids EndpointSlices: what the last run left
// serves on, however long that lasts; once the slices are in all is as it should be.
func TestNothingThatServesIsChangedBeforeSourcesAreIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		was := drv.snapshot()
		b := newBench(drv, nil)
		run(t, b, func() {
			for i := 1; i <= 4; i++ {
				b.put(svcEvent(i, 80)) // 4 is new, and it is unknown whether it has endpoints
			}
			b.put(sliceEvent(1, 2)) // the first page of slices: half of what 1 has
			synctest.Wait()
			if b.drv.count().loads != 1 {
				t.Fatal("the kernel was read before a minute was over")
			}
			for range 10 {
				time.Sleep(time.Minute) // virtual time (synctest)
				b.put(sliceEvent(2, 99))
				synctest.Wait()
				if now := drv.snapshot(); !maps.Equal(now, was) {
					t.Fatalf("changed before the sources were in: %v, was %v", now, was)
				}
			}
			for _, turn := range b.turns() {
				if turn.Complete || len(turn.Decided)+len(turn.Gone) > 0 {
					t.Errorf("told as if it were in the kernel: %+v", turn)
				}
			}
			b.put(sliceEvent(2, 99), sliceEvent(1, 2, 3), goneEvent(3), synced)
			synctest.Wait()
			now := drv.snapshot()
			if _, there := now[vip(3)]; there || now[vip(4)] != "reject" || now[vip(2)] != "goto lb-1" || now[vip(1)] != "goto lb-2" {
				t.Fatalf("after the sources were in: %v", now)
			}
			if last := b.last(); !last.Complete || len(last.Decided) != 4 {
				t.Errorf("told after the sources were in: %+v", last)
			}
		})
	})
}

// After a minute Services go in that forward and of which the kernel holds nothing,
// with the base if there is none.
func TestAdditionsGoInAfterAMinute(t *testing.T) {
	for name, drv := range map[string]func(t *testing.T) *memDriver{
		"on an empty kernel":   func(*testing.T) *memDriver { return newMemDriver() },
		"beside what is there": before,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				drv := drv(t)
				was := drv.snapshot()
				b := newBench(drv, nil)
				run(t, b, func() {
					b.put(svcEvent(7, 80), sliceEvent(7, 70, 71), svcEvent(8, 80))
					time.Sleep(59 * time.Second) // virtual time (synctest)
					synctest.Wait()
					if !maps.Equal(drv.snapshot(), was) {
						t.Fatal("written before a minute was over")
					}
					time.Sleep(2 * time.Second) // virtual time (synctest)
					synctest.Wait()
					now := drv.snapshot()
					if _, there := now[vip(8)]; there || now[vip(7)] != "goto lb-2" {
						t.Fatalf("after a minute: %v", now)
					}
					for k, v := range was {
						if now[k] != v {
							t.Errorf("%v was changed from %q to %q", k, v, now[k])
						}
					}
					b.put(synced)
					synctest.Wait()
					if now := drv.snapshot(); now[vip(8)] != "reject" || now[vip(1)] != "" || len(b.last().Decided) != 2 {
						t.Fatalf("after the sources were in: %v, told %v", now, b.last().Decided)
					}
				})
			})
		})
	}
}

// A table that must be rebuilt serves unchanged until all sources are synced.
func TestNoRebuildBeforeSourcesAreIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		was := drv.snapshot()
		drv.failLoad = func() error {
			return &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "another layout"}
		}
		b := newBench(drv, nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 2, 3), svcEvent(9, 80), sliceEvent(9, 90))
			time.Sleep(5 * time.Minute) // virtual time (synctest)
			synctest.Wait()
			if !maps.Equal(drv.snapshot(), was) {
				t.Fatalf("changed before the sources were in: %v", drv.snapshot())
			}
			b.put(synced)
			synctest.Wait()
			if now := drv.snapshot(); now[vip(9)] != "goto lb-1" || now[vip(2)] != "" || drv.count().rebuilds != 1 || drv.count().applies != 2 {
				t.Fatalf("%d rebuilds in %d writes: %v", drv.count().rebuilds, drv.count().applies, now)
			}
			if r := b.last().Rebuilt; len(r) != 1 || r[0] != (Rebuilt{model.IPv4, "another layout"}) || len(b.last().Drift) > 0 {
				t.Errorf("told: %+v", b.last())
			}
		})
	})
}

// While the sources are not in, a change costs its name: ten thousand changes of a
// Service are decided once.
func TestChangesBeforeSyncedCostNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80))
			b.put(inSlice(1, "-b", 5))
			for i := range 10_000 {
				b.put(sliceEvent(1, i, i+1))
				synctest.Wait()
			}
			if err := b.Inspect(t.Context(), func(View) {
				if len(b.Engine.turn.Decided) > 0 || len(b.Engine.dirty) != 1 || len(b.Engine.leaving) > 0 || len(b.Engine.turn.Triggers) > maxTriggers {
					t.Errorf("%d decisions, %d names and %d triggers are kept", len(b.Engine.turn.Decided), len(b.Engine.dirty), len(b.Engine.turn.Triggers))
				}
			}); err != nil {
				t.Fatal(err)
			}
			b.put(synced)
			synctest.Wait()
			if last := b.last(); len(last.Decided) != 1 || len(last.Triggers) != maxTriggers {
				t.Errorf("%d decisions, %d triggers told", len(last.Decided), len(last.Triggers))
			}
		})
	})
}
