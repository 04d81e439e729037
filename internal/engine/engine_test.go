package engine

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// run starts the engine in a synctest bubble and stops it at the end.
func run(t *testing.T, b *bench, test func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	synctest.Wait()
	test()
	stop()
	if err := <-done; err != nil {
		t.Fatal("run:", err)
	}
}

var synced = model.Event{Synced: "file"}

func key(kind dataplane.Kind, id string) dataplane.Key {
	return dataplane.Key{Kind: kind, Family: model.IPv4, ID: id}
}

func TestRestartWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := newMemDriver()
		var events []model.Event
		for i := range 50 {
			events = append(events, svcEvent(i, 80), sliceEvent(i, 3*i, 3*i+1, 3*i+2))
		}
		events = append(events, synced) // last, as sources promise
		first := newBench(drv, nil)
		run(t, first, func() { first.put(events...); synctest.Wait() })
		was, before := drv.count().ops, drv.snapshot()
		second := newBench(drv, nil)
		run(t, second, func() {
			second.put(events...)
			synctest.Wait()
			if drv.count().ops != was || !maps.Equal(before, drv.snapshot()) {
				t.Fatalf("restart wrote %d objects", drv.count().ops-was)
			}
			if last := second.last(); !last.Full || last.Pending != 0 {
				t.Fatalf("restart's turn: %+v", last)
			}
		})
	})
}

// The cost guard: at 10 000 Services a steady engine reads nothing, and one
// changed endpoint writes two slots in one transaction.
func TestCostOfOneChangeAt10000Services(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			for i := range 10_000 {
				b.put(svcEvent(i, 80), sliceEvent(i, 4*i, 4*i+1, 4*i+2, 4*i+3))
			}
			b.put(synced)
			synctest.Wait()
			if b.drv.count().biggest > 12_000 {
				t.Fatalf("a transaction of %d operations", b.drv.count().biggest)
			}
			loads, applies, ops := b.drv.count().loads, b.drv.count().applies, b.drv.count().ops
			b.put(sliceEvent(77, 308, 309, 310, 99_999))
			synctest.Wait()
			if b.drv.count().ops-ops != 1 || b.drv.count().applies-applies != 1 || b.drv.count().loads != loads || b.drv.count().changed != 0 {
				t.Fatalf("one replaced endpoint: %d operations, %d transactions, %d reads", b.drv.count().ops-ops, b.drv.count().applies-applies, b.drv.count().loads-loads)
			}
			b.put(sliceEvent(77, 308, 309, 310, 99_999))
			synctest.Wait()
			if b.drv.count().applies-applies != 1 {
				t.Fatal("an event that changes nothing wrote")
			}
		})
	})
}

func TestForeignWriteIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2), svcEvent(2, 80), synced)
			synctest.Wait()
			want, ops := b.drv.snapshot(), b.drv.count().ops
			b.drv.foreign(func(k map[dataplane.Key]string) {
				delete(k, key(kindVerdict, "10.96.0.1:80/TCP"))
				k[key(kindPool, "alien")] = "aaaa"
			})
			synctest.Wait()
			if !maps.Equal(want, b.drv.snapshot()) || b.drv.count().ops-ops != 2 {
				t.Fatalf("after repair (%d operations): %v", b.drv.count().ops-ops, b.drv.snapshot())
			}
			if d := b.last().Drift; len(d) != 2 {
				t.Fatalf("drift told: %v", d)
			}
			b.drv.foreign(func(k map[dataplane.Key]string) { clear(k) })
			synctest.Wait()
			if !maps.Equal(want, b.drv.snapshot()) {
				t.Fatal("flush not repaired")
			}
		})
	})
}

func TestConflictDuringAWriteLoadsAndRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			synctest.Wait()
			b.drv.mu.Lock()
			b.drv.moved = true // written by another program, no alarm raised
			delete(b.drv.kernel, key(kindVerdict, "10.96.0.1:80/TCP"))
			b.drv.mu.Unlock()
			b.put(svcEvent(2, 80))
			synctest.Wait()
			if n := len(b.drv.snapshot()); n != 5 || b.last().Conflicts != 1 {
				t.Fatalf("%d objects, %d conflicts", n, b.last().Conflicts)
			}
		})
	})
}

// Another program writes continuously: no write succeeds before the watcher can distinguish
// whose objects changed, so it must be started before the first build is over.
func TestBusyNeighbourAtTheStart(t *testing.T) {
	for _, first := range []error{dataplane.ErrInterrupted, dataplane.ErrConflict} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(newMemDriver(), nil)
			unwatched := func() error {
				if b.drv.ring == nil {
					return first
				}
				return nil
			}
			if errors.Is(first, dataplane.ErrInterrupted) {
				b.drv.failLoad = unwatched
			} else {
				b.drv.fail = func(dataplane.Batch) error { return unwatched() }
			}
			run(t, b, func() {
				b.put(svcEvent(1, 80), synced)
				synctest.Wait()
				time.Sleep(time.Second) // the first rounds may be over before the watcher runs
				synctest.Wait()
				if _, in := b.drv.snapshot()[key(kindVerdict, "10.96.0.1:80/TCP")]; !in {
					t.Fatalf("%v: nothing was built in %d loads, %d applies", first, b.drv.count().loads, b.drv.count().applies)
				}
			})
		})
	}
}

func TestTransientFailuresAreRetriedThenRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			synctest.Wait()
			for i := range 2 * distrustAfter { // failures with a success after each do not add up
				b.drv.mu.Lock()
				b.drv.fail = func(dataplane.Batch) error { b.drv.fail = nil; return errors.New("ENOMEM") }
				b.drv.mu.Unlock()
				b.put(sliceEvent(1, i))
				time.Sleep(200 * time.Millisecond) // virtual time (synctest): the first retry
			}
			if n := b.drv.count(); n.rebuilds > 0 || n.loads > 1 || b.last().Err != nil {
				t.Fatalf("%d rebuilds and %d loads after single failures, the last %v", n.rebuilds, n.loads, b.last().Err)
			}
			b.put(sliceEvent(1))
			synctest.Wait()
			b.drv.mu.Lock()
			failed := b.drv.applies
			b.drv.fail = func(batch dataplane.Batch) error {
				if len(batch.Rebuild) > 0 {
					return nil
				}
				return errors.New("ENOMEM")
			}
			b.drv.mu.Unlock()
			b.put(svcEvent(2, 80))
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if b.drv.count().rebuilds != 1 || b.drv.count().applies-failed > 20 {
				t.Fatalf("%d rebuilds in %d tries", b.drv.count().rebuilds, b.drv.count().applies)
			}
			if k := b.drv.snapshot(); len(k) != 3 || b.last().Err != nil {
				t.Fatalf("after the rebuild: %v %v", k, b.last().Err)
			}
		})
	})
}

// TestLostAnswer: a write was done, its answer lost, and before the retry the old
// state is wanted again. Believing that nothing was written, nothing would be.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			synctest.Wait()
			before := b.drv.snapshot()
			b.drv.lose = errors.New("no buffer space")
			b.put(sliceEvent(1, 2))
			synctest.Wait()
			if maps.Equal(b.drv.snapshot(), before) {
				t.Fatal("the write was not done")
			}
			b.put(sliceEvent(1, 1))
			time.Sleep(time.Second) // virtual time (synctest): the retry
			synctest.Wait()
			if now := b.drv.snapshot(); !maps.Equal(now, before) {
				t.Fatalf("the kernel holds %v, wanted %v", now, before)
			}
			for _, turn := range b.turns() {
				if len(turn.Drift) > 0 {
					t.Errorf("our own write is told as somebody else's: %v", turn.Drift)
				}
			}
		})
	})
}

func TestMinSyncThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.MinSync = time.Second })
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			synctest.Wait()
			for i := range 9 {
				time.Sleep(100 * time.Millisecond)
				b.put(svcEvent(10+i, 80))
			}
			synctest.Wait()
			if b.drv.count().applies != 1 {
				t.Fatalf("%d transactions within the pause", b.drv.count().applies)
			}
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			if len(b.drv.snapshot()) != 11 || b.drv.count().applies != 2 {
				t.Fatalf("%d objects by %d transactions", len(b.drv.snapshot()), b.drv.count().applies)
			}
		})
	})
}

// TestPaceFollowsTheWrites: if a write is slow, changes that come during it wait and
// are applied together; the first is applied at once.
func TestPaceFollowsTheWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newMemDriver()
		slow.applyTakes = 20 * time.Millisecond
		b := newBench(slow, func(p *Params) { p.Pace = 16 })
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			time.Sleep(30 * time.Millisecond)
			for i := range 9 {
				b.put(svcEvent(10+i, 80))
				time.Sleep(30 * time.Millisecond)
			}
			if n := b.drv.count().applies; n != 1 {
				t.Fatalf("%d transactions within the pause of 320 ms", n)
			}
			time.Sleep(100 * time.Millisecond)
			if n := b.drv.count().applies; n != 2 || len(b.drv.snapshot()) != 11 {
				t.Fatalf("%d objects by %d transactions", len(b.drv.snapshot()), n)
			}
			time.Sleep(time.Second)
			b.put(svcEvent(1, 81))
			time.Sleep(30 * time.Millisecond)
			if n := b.drv.count().applies; n != 3 {
				t.Fatalf("a change on a quiet agent waits: %d transactions", n)
			}
		})
	})
}

func TestUnusedChainGoesAfterItsLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2), synced)
			synctest.Wait()
			b.put(sliceEvent(1, 1))
			synctest.Wait()
			if _, there := b.drv.snapshot()[key(kindChain, "lb-2")]; !there {
				t.Fatal("chain deleted in the change that stopped using it")
			}
			time.Sleep(11 * time.Second)
			synctest.Wait()
			if _, there := b.drv.snapshot()[key(kindChain, "lb-2")]; there {
				t.Fatal("unused chain left")
			}
			b.put(goneEvent(1))
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := len(b.drv.snapshot()); n != 1 {
				t.Fatalf("%d objects left", n)
			}
		})
	})
}

// While commits fail, several decisions of one Service accumulate: observers must
// receive the newest only, or a stale one would restore a removed endpoint.
func TestFollowersSeeTheNewestDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		b.drv.fail = func(dataplane.Batch) error { return errors.New("ENOMEM") }
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			synctest.Wait()
			b.put(sliceEvent(1, 1, 2))
			synctest.Wait()
			b.drv.mu.Lock()
			b.drv.fail = nil
			b.drv.mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			last := b.last()
			if len(last.Decided) != 1 || len(last.Decided[0].Result.Frontends[0].Backends) != 2 {
				t.Fatalf("decided: %+v", last.Decided)
			}
		})
	})
}
