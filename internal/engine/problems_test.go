package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// A Problem of a slice is reported once, and cleared when it is resolved; a Turn also
// reports the number of objects.
func TestProblemsOfASlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			bad := sliceEvent(1, 1, 2)
			bad.Problems = []model.Problem{{Object: "EndpointSlice default/s1", Field: "endpoints[3]", Reason: "no address"}}
			b.put(svcEvent(1, 80), svcEvent(2, 80), bad, synced)
			synctest.Wait()
			last := b.last()
			if len(last.Problems) != 1 || last.Problems[0] != bad.Problems[0] {
				t.Fatalf("told: %+v", last.Problems)
			}
			if last.Services != 2 || last.Slices != 1 || last.Endpoints != 2 {
				t.Fatalf("%d Services, %d slices, %d endpoints", last.Services, last.Slices, last.Endpoints)
			}
			b.put(sliceEvent(1, 1, 2))
			synctest.Wait()
			if last = b.last(); len(last.Well) != 1 || last.Well[0] != bad.Problems[0].Object {
				t.Fatalf("after the recovery: %+v", last.Well)
			}
		})
	})
}

// A Problem of a source is reported at once, although the engine may not write before
// all sources are synced: it is the reason why the engine waits.
func TestProblemsAreToldBeforeTheSourcesAreIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			refused := model.Problem{Object: "kubernetes API", Reason: "cannot reach it: connection refused"}
			b.put(model.Event{Origin: "kubernetes API", Problems: []model.Problem{refused}})
			synctest.Wait()
			last := b.last()
			if !last.Waits || len(last.Problems) != 1 || last.Problems[0] != refused {
				t.Fatalf("after a problem: %+v", last)
			}
			time.Sleep(10 * time.Second) // virtual time (synctest)
			if n := len(b.turns()); n != 1 {
				t.Fatalf("told %d times", n)
			}
			b.put(model.Event{Origin: "kubernetes API"})
			synctest.Wait()
			if last = b.last(); !last.Waits || len(last.Well) != 1 || last.Well[0] != "kubernetes API" {
				t.Fatalf("after the recovery: %+v", last)
			}
		})
	})
}
