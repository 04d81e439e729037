package engine

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// After whatever made the engine doubt, the hourly comparison goes on.
func TestAuditsGoOnAfterTrouble(t *testing.T) {
	once := func(b *bench, err error) {
		told := false
		b.drv.mu.Lock()
		defer b.drv.mu.Unlock()
		b.drv.fail = func(dataplane.Batch) error {
			if told {
				return nil
			}
			told = true
			return err
		}
	}
	for name, err := range map[string]error{
		"a rebuild":                 &dataplane.RebuildError{Families: []model.Family{model.IPv4}, Why: "a set is full"},
		"a write without an answer": errors.New("no answer, says the test"),
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				once(b, err)
				b.put(svcEvent(2, 80))
				time.Sleep(time.Minute) // virtual time (synctest)
				synctest.Wait()
				if _, in := b.drv.snapshot()[vip(2)]; !in {
					t.Fatal("the change is not in: this test shows nothing")
				}
				was := b.drv.count()
				b.put(svcEvent(3, 80))
				synctest.Wait()
				if n := b.drv.count().changed - was.changed; n != 0 {
					t.Errorf("the driver is asked %d times more whether anybody wrote", n)
				}
				time.Sleep(2 * time.Hour) // virtual time (synctest)
				synctest.Wait()
				if n := b.drv.count().loads - was.loads; n < 1 {
					t.Error("nothing is compared any more")
				}
			})
		})
	}
}

// A comparison that failed is made up for, does not give way then, and tells what it finds.
func TestAuditThatFailedDoesNotGiveWay(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		repaired := b.slowly()
		b.drv.mu.Lock()
		b.drv.failLoad = func() error { b.drv.failLoad = nil; return errors.New("no memory, says the test") }
		b.drv.mu.Unlock()
		time.Sleep(time.Hour + 1500*time.Millisecond) // virtual time (synctest): in the midst of the second try
		if took := b.takes(2); took < 400*time.Millisecond || took > 600*time.Millisecond {
			t.Errorf("the change went in after %v", took)
		}
		if !repaired() {
			t.Error("the comparison was given up")
		}
		if !slices.ContainsFunc(b.turns(), func(t Turn) bool { return len(t.Drift) == 1 }) {
			t.Error("what somebody else did is not told")
		}
	})
}

// A change that comes just when a comparison is due goes first.
func TestAuditThatIsDueWithAChangeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead time.Duration
		b := newBench(newMemDriver(), func(p *Params) { p.Now = func() time.Time { return time.Now().Add(ahead) } })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2), synced)
			synctest.Wait()
			b.slowly()
			ahead = 2 * time.Hour // the clock says so, and no timer has: the event comes first
			if took := b.takes(2); took > 10*time.Millisecond {
				t.Errorf("a change waited %v for a comparison that was due with it", took)
			}
		})
	})
}

// An audit on demand returns the objects that another program deleted, changed and
// added, as often as it is requested.
func TestAuditOnDemandTellsThreeKinds(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.put(svcEvent(2, 80))
		synctest.Wait()
		added := key(kindVerdict, "10.96.9.9:80/TCP")
		for range 4 {
			b.drv.mu.Lock() // no alarm is raised
			delete(b.drv.kernel, vip(1))
			b.drv.kernel[vip(2)], b.drv.kernel[added] = "drop", "drop"
			b.drv.mu.Unlock()
			a, err := b.Audit(t.Context())
			slices.Sort(a.Names)
			want := []string{"different: " + vip(2).String(), "foreign: " + added.String(), "missing: " + vip(1).String()}
			if err != nil || a.Missing != 1 || a.Different != 1 || a.Foreign != 1 || !slices.Equal(a.Names, want) {
				t.Fatalf("%+v, %v", a, err)
			}
			synctest.Wait()
		}
	})
}

// A rejected write without a responsible Service is retried with a backoff, not at once
// without end; finally the rules are rebuilt, without the rejected object.
func TestRefusalThatIsNobodysFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stray := key(kindVerdict, "10.96.9.9:80/TCP")
		drv := newMemDriver()
		drv.kernel[stray] = "drop"
		drv.refuse(func(op dataplane.Op) bool { return op.Key == stray })
		b := newBench(drv, nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if n := drv.count().applies; n < 3 || n > 20 {
				t.Errorf("%d writes in a minute", n)
			}
			if _, there := drv.snapshot()[stray]; there || b.last().Err != nil || len(b.last().Rebuilt) != 1 || b.turns()[0].Err == nil {
				t.Errorf("told at the end: %+v", b.last())
			}
		})
	})
}

// backoff stays between half of its step and the whole.
func TestBackoffIsBounded(t *testing.T) {
	for n := range 20 {
		step := min(50*time.Millisecond<<min(n, 10), 30*time.Second)
		for range 100 {
			if d := backoff(n); d < step/2 || d > step {
				t.Fatalf("after %d failures: %v, of %v", n, d, step)
			}
		}
	}
}
