package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

var listed1 = model.Event{Listed: "file"}

// expectVIPs checks where Services lead to; "" is nowhere.
func expectVIPs(t *testing.T, at string, drv *memDriver, want map[int]string) {
	t.Helper()
	now := drv.snapshot()
	for i, v := range want {
		if now[vip(i)] != v {
			t.Errorf("%s: Service %d leads to %q, want %q", at, i, now[vip(i)], v)
		}
	}
}

// A source that can read only a part says Listed. That part is followed in full: changes, removals, the end of
// all endpoints. What the last run left of objects that have not been read stays until Synced.
func TestListedFollowsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t) // 1 to 3 with two endpoints each
		b := newBench(drv, nil)
		run(t, b, func() {
			// 3 and the slice of 2 cannot be read; 4 and 5 are new, and 5 has no endpoints.
			b.put(svcEvent(1, 80), sliceEvent(1, 2, 3), svcEvent(2, 80), svcEvent(4, 80), sliceEvent(4, 8), svcEvent(5, 80), listed1)
			synctest.Wait()
			expectVIPs(t, "listed", drv, map[int]string{1: "goto lb-2", 2: "goto lb-2", 3: "goto lb-2", 4: "goto lb-1", 5: "reject"})
			if last := b.last(); !last.Complete || last.Pending != 0 || len(last.Decided) != 4 {
				t.Errorf("told %+v", last)
			}
			for _, d := range b.last().Decided {
				if served := len(d.Result.Frontends); served == 0 != (d.Key.Name == "svc-00002") {
					t.Errorf("%v is told with %d Frontends", d.Key, served)
				}
			}
			b.put(sliceEvent(1), svcEvent(2, 80), goneEvent(4))
			time.Sleep(time.Second) // virtual time (synctest): a departure
			synctest.Wait()
			expectVIPs(t, "changed", drv, map[int]string{1: "reject", 2: "goto lb-2", 3: "goto lb-2", 4: "", 5: "reject"})
			if gone := b.last().Gone; len(gone) != 1 || gone[0].Addr != svcEvent(4, 80).Service.Value.ClusterIPs[0] {
				t.Errorf("told as gone: %v", gone)
			}
			b.put(svcEvent(6, 80), inSlice(6, "-a", 60, 61), inSlice(6, "-b", 62))
			synctest.Wait()
			b.put(noSlice(6, "-b")) // its endpoint may have moved
			synctest.Wait()
			expectVIPs(t, "a slice is gone", drv, map[int]string{6: "goto lb-3"})
			time.Sleep(departPause) // virtual time (synctest)
			synctest.Wait()
			expectVIPs(t, "its endpoint has not come back", drv, map[int]string{6: "goto lb-2"})
			b.withheld(t, "before all is read", 1)
			b.put(svcEvent(1, 81)) // a port that is given up
			synctest.Wait()
			expectVIPs(t, "another port", drv, map[int]string{1: "", 2: "goto lb-2", 3: "goto lb-2"})
			b.put(synced)
			synctest.Wait()
			expectVIPs(t, "synced", drv, map[int]string{1: "", 2: "reject", 3: "", 4: "", 5: "reject"})
			b.withheld(t, "synced", 0)
			if last := b.last(); !last.Complete || len(last.Decided) != 1 || last.Decided[0].Key.Name != "svc-00002" {
				t.Errorf("told once all was read: %+v", last)
			}
		})
	})
}

// Endpoints that were withheld and come after all are written, and from then on they are followed.
func TestWithheldServiceIsFollowedOnceItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		b := newBench(drv, nil)
		run(t, b, func() {
			b.drv.mu.Lock()
			b.drv.fail = func(dataplane.Batch) error { b.drv.fail = nil; return errors.New("no memory, says the test") }
			b.drv.mu.Unlock()
			b.put(svcEvent(1, 80), svcEvent(2, 80), sliceEvent(2, 4, 5), svcEvent(4, 80), listed1)
			time.Sleep(time.Second) // virtual time (synctest): the retry
			synctest.Wait()
			for _, turn := range b.turns() {
				for _, d := range turn.Decided {
					if d.Key.Name == "svc-00001" && len(d.Result.Frontends) > 0 {
						t.Errorf("a withheld Frontend is told: %+v", d.Result.Frontends)
					}
				}
			}
			b.withheld(t, "at the start", 1)
			b.put(sliceEvent(1, 9))
			synctest.Wait()
			b.withheld(t, "its slice is read", 0)
			expectVIPs(t, "its slice is read", drv, map[int]string{1: "goto lb-1", 2: "goto lb-2", 3: "goto lb-2"})
			b.put(sliceEvent(1))
			synctest.Wait()
			expectVIPs(t, "its slice is empty", drv, map[int]string{1: "reject", 2: "goto lb-2", 3: "goto lb-2"})
		})
	})
}

// withheld wants so many Services of which a Frontend is withheld.
func (b *bench) withheld(t *testing.T, at string, want int) {
	t.Helper()
	n := 0
	if err := b.Inspect(t.Context(), func(v View) {
		for k := range v.State().Keys() {
			if v.Withheld(k) {
				n++
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Errorf("%s: a Frontend of %d Services is withheld, want %d", at, n, want)
	}
}

// Where an earlier run has left nothing else, a source that is Listed is as good as one that is Synced: an object of
// another program goes, and a full set is made anew.
func TestListedWithoutLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		b := newBench(drv, nil)
		run(t, b, func() {
			for i := 1; i <= 3; i++ {
				b.put(svcEvent(i, 80), sliceEvent(i, 2*i, 2*i+1))
			}
			b.put(listed1)
			synctest.Wait()
			if n := drv.count().applies; n != 1 {
				t.Errorf("%d writes: a restart writes nothing", n-1)
			}
			drv.foreign(func(m map[dataplane.Key]string) { m[vip(77)] = "goto lb-1" })
			synctest.Wait()
			onceFull(drv)
			b.put(svcEvent(9, 80), sliceEvent(9, 90))
			synctest.Wait()
			expectVIPs(t, "a set is full", drv, map[int]string{1: "goto lb-2", 9: "goto lb-1", 77: ""})
			if n := drv.count().rebuilds; n != 1 {
				t.Errorf("%d rebuilds, want 1", n)
			}
		})
	})
}

// The first minute is over before the source says what it can read.
func TestListedAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		b := newBench(drv, nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 2), svcEvent(2, 80))
			time.Sleep(2 * time.Minute) // virtual time (synctest)
			synctest.Wait()
			b.put(listed1)
			synctest.Wait()
			expectVIPs(t, "listed", drv, map[int]string{1: "goto lb-1", 2: "goto lb-2", 3: "goto lb-2"})
			drv.foreign(func(m map[dataplane.Key]string) { delete(m, vip(1)) }) // everything is read again
			synctest.Wait()
			expectVIPs(t, "read again", drv, map[int]string{1: "goto lb-1", 2: "goto lb-2", 3: "goto lb-2"})
			b.put(synced)
			synctest.Wait()
			expectVIPs(t, "synced", drv, map[int]string{1: "goto lb-1", 2: "reject", 3: ""})
		})
	})
}
