package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// slowly makes each Load of a built engine take a second, and simulates a change by
// another program that only a Load can detect.
func (b *bench) slowly() (repaired func() bool) {
	verdict := key(kindVerdict, "10.96.0.1:80/TCP")
	b.drv.mu.Lock()
	defer b.drv.mu.Unlock()
	b.drv.loadTakes = time.Second
	b.drv.kernel[verdict] = "drop"
	return func() bool {
		synctest.Wait()
		return b.drv.snapshot()[verdict] != "drop"
	}
}

// takes reports how long a new Service takes to get in.
func (b *bench) takes(i int) time.Duration {
	t0 := time.Now()
	b.put(svcEvent(i, 80))
	for range 1000 {
		synctest.Wait()
		if _, in := b.drv.snapshot()[key(kindVerdict, svcEvent(i, 80).Service.Value.ClusterIPs[0].String()+":80/TCP")]; in {
			break
		}
		time.Sleep(2 * time.Millisecond) // virtual time (synctest)
	}
	return time.Since(t0)
}

func TestAuditGivesWayToAChange(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		repaired := b.slowly()
		loads := b.drv.count().loads
		time.Sleep(time.Hour + 500*time.Millisecond) // in the midst of the audit
		synctest.Wait()
		if n := b.drv.count().loads - loads; n != 1 {
			t.Fatalf("%d audits after an hour", n)
		}
		if took := b.takes(2); took > 10*time.Millisecond {
			t.Errorf("a change waited %v for an audit", took)
		}
		if repaired() {
			t.Error("the audit was over: this test shows nothing")
		}
		time.Sleep(auditPause + 2*time.Second) // virtual time (synctest)
		if !repaired() || len(b.last().Drift) != 1 || !b.last().Full {
			t.Errorf("the audit was not made up for: %+v", b.last())
		}
		if n := b.drv.count().loads - loads; n != 2 {
			t.Errorf("%d loads for one audit that gave way once", n)
		}
	})
}

// Changes all the time make an audit late, not void, and one of them waits for it.
func TestAuditAmongManyChanges(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		repaired := b.slowly()
		time.Sleep(time.Hour) // virtual time (synctest)
		late, began := 0, time.Now()
		for i := 2; !repaired(); i++ {
			if b.takes(i) > 10*time.Millisecond {
				late++
			}
			time.Sleep(300 * time.Millisecond) // virtual time (synctest)
			if time.Since(began) > 2*maxGaveWay*auditPause {
				t.Fatal("no audit")
			}
		}
		if late > 1 {
			t.Errorf("%d changes waited for one audit", late)
		}
		loads := b.drv.count().loads
		time.Sleep(time.Hour - time.Minute) // virtual time (synctest)
		synctest.Wait()
		if n := b.drv.count().loads - loads; n != 0 {
			t.Errorf("%d loads in the hour after the audit", n)
		}
		for i, began := 10_000, time.Now(); time.Since(began) < 90*time.Second; i++ { // the next audit is preempted as well
			if took := b.takes(i); took > 10*time.Millisecond {
				t.Fatalf("a change waited %v for the next audit, %v after that was due", took, time.Since(began)-time.Minute)
			}
			time.Sleep(300 * time.Millisecond) // virtual time (synctest)
		}
	})
}

// A required Load is not preempted, because the actual state is stale until it is over.
func TestLoadAfterAnAlarmDoesNotGiveWay(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		repaired := b.slowly()
		loads := b.drv.count().loads
		b.drv.foreign(func(map[dataplane.Key]string) {})
		time.Sleep(500 * time.Millisecond) // virtual time (synctest)
		if took := b.takes(2); took < 400*time.Millisecond || took > 600*time.Millisecond {
			t.Errorf("the change went in after %v", took)
		}
		if n := b.drv.count().loads - loads; n != 1 || !repaired() {
			t.Errorf("%d loads", n)
		}
	})
}

// TestAuditAfterARestart: the agent owns the objects that its predecessor left. A
// comparison right after the start, before the sources are synced or while changes are
// pending, reports none of them as foreign.
func TestAuditAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := newMemDriver()
		events := []model.Event{svcEvent(1, 80), sliceEvent(1, 1, 2), svcEvent(2, 80), sliceEvent(2, 3), synced}
		first := newBench(drv, nil)
		run(t, first, func() { first.put(events...); synctest.Wait() })
		second := newBench(drv, nil)
		run(t, second, func() {
			loads := drv.count().loads
			alarm := func() {
				drv.foreign(func(map[dataplane.Key]string) {}) // another program wrote, and changed no object of the agent
				synctest.Wait()
			}
			alarm()
			time.Sleep(2 * time.Hour) // virtual time (synctest): an audit that nothing but the clock asks for
			for _, ev := range events {
				second.put(ev)
				synctest.Wait()
				alarm()
			}
			time.Sleep(2 * time.Hour) // virtual time (synctest)
			synctest.Wait()
			if n := drv.count().loads - loads; n < 4 {
				t.Errorf("%d comparisons: this test shows nothing", n)
			}
			for _, turn := range second.turns() {
				if len(turn.Drift) > 0 {
					t.Errorf("called somebody else's doing: %+v", turn.Drift)
				}
			}
		})
	})
}

// TestAuditOnDemand: an audit on demand compares at once and returns the drift; a change goes first.
func TestAuditOnDemand(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		repaired := b.slowly()
		answer := make(chan Audited, 1)
		go func() {
			a, err := b.Audit(t.Context())
			if err != nil {
				t.Error(err)
			}
			answer <- a
		}()
		time.Sleep(500 * time.Millisecond) // virtual time (synctest): in the midst of it
		if took := b.takes(2); took > 10*time.Millisecond {
			t.Errorf("a change waited %v for an audit on demand", took)
		}
		a := <-answer
		if a.Different != 1 || a.Missing+a.Foreign != 0 || len(a.Names) != 1 || a.Objects == 0 || a.Took < time.Second {
			t.Errorf("%+v", a)
		}
		if !repaired() {
			t.Error("what differed was not repaired")
		}
		if again, err := b.Audit(t.Context()); err != nil || again.Different != 0 {
			t.Errorf("a second one: %+v, %v", again, err)
		}
	})
}
