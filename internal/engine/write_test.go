package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Rejected objects are reported by name, for each Service.
func TestHeldIsToldByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		b.drv.refuse(func(op dataplane.Op) bool {
			return op.Key.Kind == kindVerdict && !strings.HasSuffix(op.Key.ID, ".0.9:80/TCP")
		})
		run(t, b, func() {
			for i := 9; i > 0; i-- {
				b.put(svcEvent(i, 80))
			}
			b.put(synced)
			synctest.Wait()
			for _, q := range b.turns()[0].Quarantined {
				if len(q.Objects) != 1 || !strings.Contains(q.Objects[0], "/") {
					t.Errorf("%s: refused objects are %q", q.Service, q.Objects)
				}
			}
			if err := b.Inspect(t.Context(), func(v View) {
				list := v.Held()
				for i, h := range list {
					if want := vip(i + 1).String(); h.Service != svcEvent(i+1, 80).Service.Key || !slices.Equal(h.Objects, []string{want}) {
						t.Errorf("number %d is %s with %q", i, h.Service, h.Objects)
					}
				}
				if len(list) != 8 {
					t.Errorf("%d are held", len(list))
				}
			}); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// A change that is larger than a transaction should be is one transaction.
func TestLargeChangeIsOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.ChunkOps = 3 })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2, 3, 4, 5, 6), synced)
			synctest.Wait()
			was := b.drv.count().applies
			b.put(sliceEvent(1, 11, 12, 13, 14, 15, 16))
			synctest.Wait()
			if n := b.drv.count().applies - was; n != 1 {
				t.Errorf("%d transactions", n)
			}
		})
	})
}

// The driver hears what comes in later transactions, all of it, or as much as it asks for.
func TestLater(t *testing.T) {
	if later(nil) != nil {
		t.Error("nothing comes later, and there is a list of it")
	}
	chunks := [][]diff{{{Key: vip(1), Want: "a"}, {Key: vip(2), Want: "b"}}, {{Key: vip(3), Have: "c"}}}
	want := []dataplane.Op{{Key: vip(1), Want: "a"}, {Key: vip(2), Want: "b"}, {Key: vip(3), Have: "c"}}
	if got := slices.Collect(later(chunks)); !slices.Equal(got, want) {
		t.Errorf("later comes %v", got)
	}
	for op := range later(chunks) {
		if op != want[0] {
			t.Errorf("the first is %v", op)
		}
		break
	}
}

// viewDriver renders the selected part of the view, and reports when that has changed.
type viewDriver struct{ *memDriver }

func (d viewDriver) ViewChanged(o, n *model.NodeView) bool {
	return len(o.NodeAddrs) != len(n.NodeAddrs)
}

func (d viewDriver) Render(f *model.Frontend, v *model.NodeView, emit func(dataplane.Object)) {
	emit(dataplane.Object{Key: key(kindVerdict, f.Key.String()), Value: fmt.Sprint(len(v.NodeAddrs), " addresses")})
}

// Objects that depend on the node are rendered again if the driver reports that the node changed.
func TestViewChangeIsRendered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := newMemDriver()
		b := newBench(drv, func(p *Params) { p.Driver = viewDriver{drv} })
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			synctest.Wait()
			for _, addrs := range [][]string{{"192.168.7.1/24"}, {"192.168.7.1/24", "192.168.8.1/24"}} {
				b.put(hostEvent(addrs...))
				synctest.Wait()
				if got := drv.snapshot()[vip(1)]; got != fmt.Sprint(len(addrs), " addresses") {
					t.Errorf("rendered with %s", got)
				}
			}
		})
	})
}

// An endpoint that another slice of the Service has did not leave, however many there are.
func TestEndpointsOfAnotherSliceDidNotLeave(t *testing.T) {
	many := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
	for _, n := range []int{1, 5, 20} {
		old := inSlice(1, "-a", append([]int{99}, many[:n]...)...).Slice.Value
		now := []*model.Slice{inSlice(1, "-a", 99).Slice.Value, inSlice(1, "-b", append([]int{77, 78}, many[:n]...)...).Slice.Value}
		if lost := lostEndpoints(old, now); lost != nil {
			t.Errorf("of %d endpoints %d are said to have left", n, len(lost.Endpoints))
		}
		now[1] = otherPorts(inSlice(1, "-b", many[:n]...)).Slice.Value
		now = append(now, inSlice(1, "-c", 55).Slice.Value)
		lost := lostEndpoints(old, now)
		if lost == nil || len(lost.Endpoints) != n || lost.Key == old.Key {
			t.Errorf("of %d endpoints these left: %v", n, lost)
		}
	}
}

// Every phase is measured: a clock that goes on at each look shows it.
func TestPhasesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		b := newBench(newMemDriver(), func(p *Params) {
			p.Now = func() time.Time { now = now.Add(time.Microsecond); return now }
		})
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			synctest.Wait()
			for phase, d := range b.turns()[0].Phases {
				if d <= 0 || d > time.Millisecond {
					t.Errorf("phase %d took %v", phase, d)
				}
			}
		})
	})
}
