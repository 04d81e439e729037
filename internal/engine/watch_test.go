package engine

import (
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// watched runs a test on an engine that is built and watches.
func watched(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2), synced)
			synctest.Wait()
			test(t, b)
		})
	})
}

// edit is a change by another program, and repaired reports whether it is undone.
func (b *bench) edit() (repaired func() bool) {
	want := b.drv.snapshot()
	b.drv.foreign(func(k map[dataplane.Key]string) { delete(k, key(kindVerdict, "10.96.0.1:80/TCP")) })
	return func() bool {
		synctest.Wait()
		return maps.Equal(want, b.drv.snapshot())
	}
}

// A Watch that ends begins again: what was changed in between is repaired, and
// what is changed later rings. If nothing was, nothing is read.
func TestWatchBeginsAgain(t *testing.T) {
	for name, end := range map[string]error{"with an error": errors.New("no socket, says the test"), "without": nil} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				loads := b.drv.count().loads
				b.drv.cut <- end
				synctest.Wait()
				time.Sleep(time.Second) // virtual time (synctest)
				synctest.Wait()
				if now := b.drv.count(); now.loads != loads || now.watches != 2 {
					t.Fatalf("nobody wrote: %d loads more, %d watches", now.loads-loads, now.watches)
				}
				b.drv.cut <- end
				synctest.Wait() // the end is known, and nothing has changed
				if between := b.edit(); between() {
					t.Fatal("repaired without a watch: this test shows nothing")
				} else if time.Sleep(time.Second); !between() { // virtual time (synctest)
					t.Fatal("what was changed between two watches is not repaired")
				}
				if after := b.edit(); !after() {
					t.Fatal("the second watch does not ring")
				}
			})
		})
	}
}

// A Watch that cannot begin any more is tried ever more seldom, the driver is asked
// instead, and when it can again it does.
func TestWatchThatFailsForLong(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		before := b.drv.count()
		b.drv.mu.Lock()
		b.drv.failWatch = errors.New("no memory, says the test")
		b.drv.mu.Unlock()
		b.drv.cut <- nil
		time.Sleep(30 * time.Minute) // less than to the next audit
		synctest.Wait()
		tries := b.drv.count().watches - before.watches
		if tries < 60 || tries > 150 || b.drv.count().loads != before.loads {
			t.Fatalf("%d tries and %d loads in half an hour", tries, b.drv.count().loads-before.loads)
		}
		unwatched := b.edit()
		time.Sleep(30 * time.Second) // virtual time (synctest)
		if !unwatched() {
			t.Fatal("a foreign change goes unseen without a watch")
		}
		b.drv.mu.Lock()
		b.drv.failWatch = nil
		b.drv.mu.Unlock()
		time.Sleep(30 * time.Second) // virtual time (synctest)
		if again := b.edit(); !again() {
			t.Fatal("no watch although it can be again")
		}
		time.Sleep(steadyWatch) // virtual time (synctest)
		b.drv.cut <- nil
		time.Sleep(200 * time.Millisecond) // forgotten are the failures of old
		synctest.Wait()
		if again := b.edit(); !again() {
			t.Fatal("a failure after a steady watch waits long")
		}
	})
}

// A Watch that was begun for a busy neighbour's sake, before the first build, and
// failed, is begun again before the first build is over.
func TestWatchFailsBeforeTheFirstBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64 // at the clock: there are some in each turn
		b := newBench(newMemDriver(), func(p *Params) { p.Now = func() time.Time { looks.Add(1); return time.Now() } })
		b.drv.failWatch = errors.New("no memory, says the test")
		b.drv.failLoad = func() error {
			if b.drv.ring == nil {
				return dataplane.ErrInterrupted
			}
			return nil
		}
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if now := b.drv.count(); now.applies != 0 || now.watches > 20 || looks.Load() > 5000 {
				t.Fatalf("%d transactions, %d watches, %d looks at the clock", now.applies, now.watches, looks.Load())
			}
			b.drv.mu.Lock()
			b.drv.failWatch = nil
			b.drv.mu.Unlock()
			time.Sleep(2 * time.Minute) // virtual time (synctest)
			synctest.Wait()
			if _, in := b.drv.snapshot()[key(kindVerdict, "10.96.0.1:80/TCP")]; !in {
				t.Fatalf("nothing was built in %d loads, %d watches", b.drv.count().loads, b.drv.count().watches)
			}
		})
	})
}

// A family that was rebuilt is not rebuilt again if another one must be.
func TestARebuildIsDoneOnce(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		for i, f := range []model.Family{model.IPv4, model.IPv6} {
			told := false
			b.drv.mu.Lock()
			b.drv.fail = func(dataplane.Batch) error {
				if told {
					return nil
				}
				told = true
				return &dataplane.RebuildError{Families: []model.Family{f}, Why: "a set is full"}
			}
			b.drv.mu.Unlock()
			b.put(svcEvent(2+i, 80))
			synctest.Wait()
			if n := b.drv.count().rebuilds; n != 1 || b.drv.snapshot()[vip(2+i)] != "reject" {
				t.Fatalf("%s: %d rebuilds, in the kernel %v", f, n, b.drv.snapshot())
			}
		}
	})
}

// What could not be read because its family must be made anew is no drift: the
// rebuild says it all.
func TestUnreadFamilyIsNoDrift(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		was := b.drv.snapshot()
		b.drv.mu.Lock()
		b.drv.failLoad = func() error {
			b.drv.failLoad, b.drv.moved = nil, false
			return &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "the hook of a chain"}
		}
		b.drv.mu.Unlock()
		b.drv.foreign(func(k map[dataplane.Key]string) { delete(k, vip(1)) })
		synctest.Wait()
		if last := b.last(); len(last.Rebuilt) != 1 || len(last.Drift) != 0 || last.Err != nil {
			t.Errorf("told: %+v", last)
		}
		if !maps.Equal(b.drv.snapshot(), was) {
			t.Errorf("in the kernel: %v", b.drv.snapshot())
		}
	})
}
