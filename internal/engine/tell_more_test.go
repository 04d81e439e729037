package engine

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// An event that changes nothing is told all the same, for it is counted; and one that
// needs no write begins no pause: the next change goes in at once.
func TestWhatNeedsNoWriteIsToldAndBeginsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.MinSync = time.Second })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			time.Sleep(5 * time.Second) // virtual time (synctest)
			was, writes := len(b.turns()), b.drv.count().applies
			b.put(sliceEvent(1, 1))
			synctest.Wait()
			if n := len(b.turns()) - was; n != 1 || b.last().SliceEvents != 1 || b.drv.count().applies != writes {
				t.Fatalf("%d turns told, the last %+v", n, b.last())
			}
			b.put(sliceEvent(1, 2))
			synctest.Wait()
			if n := b.drv.count().applies - writes; n != 1 {
				t.Errorf("%d writes at once", n)
			}
		})
	})
}

// A write that may have been applied is reported as decided, one that was certainly not applied is not.
func TestWhatAFailedWriteTells(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		told int
	}{
		"perhaps done":   {errors.New("no answer, says the test"), 1},
		"surely not":     {dataplane.ErrUnsupported, 0},
		"surely not yet": {dataplane.ErrConflict, 0},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				b.drv.mu.Lock()
				b.drv.fail = func(dataplane.Batch) error { return c.err }
				b.drv.mu.Unlock()
				b.put(svcEvent(2, 80))
				synctest.Wait()
				if last := b.last(); last.Err == nil || len(last.Decided) != c.told || len(last.Gone) > 0 {
					t.Errorf("told: %v, gone %v, error %v", last.Decided, last.Gone, last.Err)
				}
			})
		})
	}
}

// A Problem is reported once while the sources are not synced, whatever other events come.
func TestProblemsBeforeTheSourcesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(model.Event{Origin: "the API", Problems: []model.Problem{{Object: "the API", Reason: "it refuses"}}})
			synctest.Wait()
			b.put(svcEvent(1, 80))
			synctest.Wait()
			b.put(synced)
			synctest.Wait()
			told := 0
			for _, turn := range b.turns() {
				told += len(turn.Problems)
			}
			if told != 1 {
				t.Errorf("told %d times", told)
			}
		})
	})
}

// A source that has delivered all that it can read: what is left of before stays also
// if nothing else is to be written, and what changed is told.
func TestListedRemovesNothingAndTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := before(t)
		b := newBench(drv, nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 2, 3), svcEvent(2, 80), sliceEvent(2, 4, 5), model.Event{Listed: "file"})
			synctest.Wait()
			if _, there := drv.snapshot()[vip(3)]; !there {
				t.Error("what could not be read was removed")
			}
			if n := len(b.last().Decided); n != 2 {
				t.Errorf("%d Services told", n)
			}
			b.put(sliceEvent(1, 2, 3, 9))
			synctest.Wait()
			if last := b.last(); len(last.Decided) != 1 || drv.snapshot()[vip(1)] != "goto lb-3" {
				t.Errorf("told: %v", last.Decided)
			}
			b.put(synced)
			synctest.Wait()
			if _, there := drv.snapshot()[vip(3)]; there {
				t.Error("what is gone stays")
			}
		})
	})
}

// A data plane with one list for all clients is given one, and explanations speak of that.
func TestOneListForAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.OneList = true })
		run(t, b, func() {
			svc, eps := svcEvent(1, 80), sliceEvent(1, 1, 2)
			svc.Service.Value.ExternalLocal, svc.Service.Value.ExternalIPs = true, []netip.Addr{netip.MustParseAddr("203.0.113.1")}
			eps.Slice.Value.Endpoints[0].Node = "n"
			b.put(svc, eps, synced)
			synctest.Wait()
			for _, f := range b.last().Decided[0].Result.Frontends {
				if outside := f.LocalOnly; outside && len(f.Backends) != 1 || !outside && len(f.Backends) != 2 {
					t.Errorf("%s: %v", f.Key, f.Backends)
				}
			}
		})
	})
}

// What a data plane does not serve is a problem of the Service, each reason once.
func TestWhatTheDataPlaneDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := "it is too odd"
		b := newBench(newMemDriver(), func(p *Params) {
			p.Unsupported = func(f *model.Frontend) string {
				if f.Key.Port == 80 {
					return ""
				}
				return why
			}
		})
		run(t, b, func() {
			odd := svcEvent(1, 81)
			odd.Service.Value.ClusterIPs = append(odd.Service.Value.ClusterIPs, svcEvent(7, 81).Service.Value.ClusterIPs...)
			named := svcEvent(3, 81)
			named.Service.Value.Ports[0].Name = "web"
			b.put(odd, svcEvent(2, 80), named, synced)
			synctest.Wait()
			told := map[string]string{}
			for _, p := range b.last().Problems {
				if told[p.Object] != "" {
					t.Errorf("%s: told twice", p.Object)
				}
				told[p.Object] = p.Reason
			}
			if len(told) != 2 || told["Service default/svc-00001"] != why || told["Service default/svc-00003"] != "port web: "+why {
				t.Errorf("told: %v", told)
			}
		})
	})
}
