package engine

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/internal/model"
)

// A source that can read only a part says Listed: that part is written at once,
// and what the last run left stays until Synced.
func TestListedWritesAndRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := newMemDriver()
		first := newBench(drv, nil)
		run(t, first, func() {
			first.put(svcEvent(1, 80), sliceEvent(1, 1, 2), synced)
			synctest.Wait()
		})
		left := drv.snapshot()
		second := newBench(drv, nil)
		run(t, second, func() {
			second.put(svcEvent(2, 80), sliceEvent(2, 3, 4), model.Event{Listed: "file"})
			synctest.Wait()
			now := drv.snapshot()
			if len(now) <= len(left) {
				t.Fatalf("what was listed is not written: %v", now)
			}
			for k := range left {
				if _, ok := now[k]; !ok {
					t.Errorf("%v was removed before Synced", k)
				}
			}
			second.put(synced)
			synctest.Wait()
			if after := drv.snapshot(); len(after) != len(left) {
				t.Errorf("after Synced there are %d objects, want %d: %v", len(after), len(left), after)
			}
		})
	})
}
