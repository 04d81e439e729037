package engine

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

func nodeEvent(leaving bool) model.Event {
	return model.Event{Node: &model.Keyed[string, model.Node]{Key: "n", Value: &model.Node{Name: "n", Leaving: leaving}}}
}

// failAll fails each write in a way that leaves open whether it was done.
func (d *memDriver) failAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = func(dataplane.Batch) error { return errors.New("no memory, says the test") }
}

// unready returns an endpoint that no rule needs to know.
func unready(i, endpoint int) model.Event {
	ev := sliceEvent(i, endpoint)
	ev.Slice.Value.Endpoints[0].Ready, ev.Slice.Value.Endpoints[0].Serving = false, false
	return ev
}

// Decisions of a pause are reported when the pause is over, even if the kernel needs
// no write for them: health checks and conntrack depend on the report.
func TestChangesWithoutAWriteAreToldWithinThePause(t *testing.T) {
	for name, c := range map[string]struct {
		ev   model.Event
		told func(t *Turn) bool
	}{
		"an endpoint that is not ready": {unready(2, 9), func(t *Turn) bool { return len(t.Decided) == 1 }},
		"the node leaves":               {nodeEvent(true), func(t *Turn) bool { return t.View != nil && t.Node != nil && t.Node.Leaving }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), func(p *Params) { p.MinSync = time.Second })
				run(t, b, func() {
					b.put(svcEvent(1, 80), svcEvent(2, 80), sliceEvent(1, 1), synced)
					time.Sleep(2 * time.Second)       // virtual time (synctest)
					b.put(sliceEvent(1, 2))           // a write: now the pause lasts
					time.Sleep(50 * time.Millisecond) // virtual time (synctest)
					was, writes := len(b.turns()), b.drv.count().applies
					b.put(c.ev)
					time.Sleep(time.Second) // virtual time (synctest)
					synctest.Wait()
					turns := b.turns()[was:]
					if len(turns) != 1 || !c.told(&turns[0]) || b.drv.count().applies != writes {
						t.Fatalf("told within the pause: %+v, %d writes", turns, b.drv.count().applies-writes)
					}
				})
			})
		})
	}
}

// The changes of a failed sync are reported by the sync that applies them: the keys that
// are gone, the time of each change, the node. Their number is bounded by the existing objects.
func TestAFailedTurnLosesNothing(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.put(svcEvent(2, 80), sliceEvent(2, 5))
		synctest.Wait()
		b.drv.failAll()
		received := time.Now()
		b.put(svcEvent(1, 81), goneEvent(2), nodeEvent(true))
		synctest.Wait()
		if last := b.last(); last.Err == nil || len(last.Gone) > 0 {
			t.Fatalf("a failed turn tells %+v", last)
		}
		for i := range 2 * maxTriggers {
			b.put(sliceEvent(1, i, i+1))
			time.Sleep(time.Millisecond) // virtual time (synctest)
		}
		b.drv.refuse(nil)
		time.Sleep(time.Minute) // virtual time (synctest)
		synctest.Wait()
		last := b.last()
		if last.Err != nil || len(last.Decided) != 2 || len(last.Gone) != 2 || last.Gone[0].Port != 80 {
			t.Fatalf("told: %v, gone %v, error %v", last.Decided, last.Gone, last.Err)
		}
		if last.View == nil || last.Node == nil || !last.Node.Leaving {
			t.Errorf("the node is not told: %v %v", last.View, last.Node)
		}
		if len(last.Triggers) != maxTriggers || last.Triggers[0].Received != received {
			t.Errorf("%d triggers, the first of %v", len(last.Triggers), last.Triggers[0].Received)
		}
		was := len(b.turns())
		b.put(svcEvent(3, 80))
		synctest.Wait()
		if after := b.last(); len(b.turns()) != was+1 || len(after.Decided) != 1 || len(after.Gone)+len(after.Problems) > 0 || after.View != nil || len(after.Triggers) != 1 {
			t.Errorf("told twice: %+v", after)
		}
	})
}

// A key that was added and removed while writes failed may have been in the kernel, because
// the answer to a write can be lost, and it was reported to the observers. So it is reported
// as gone, once.
func TestWhatOnlyAFailedWriteHadIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		evs  []model.Event
		gone []uint16
	}{
		"a Service":               {[]model.Event{svcEvent(2, 90), goneEvent(2)}, []uint16{90}},
		"a Service, of two ports": {[]model.Event{svcEvent(2, 90), svcEvent(2, 91), svcEvent(2, 90), goneEvent(2)}, []uint16{90, 91}},
		"a port":                  {[]model.Event{svcEvent(1, 81), svcEvent(1, 82)}, []uint16{80, 81}},
		"a port, and back":        {[]model.Event{svcEvent(1, 81), svcEvent(1, 80)}, []uint16{81}},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				b.drv.failAll()
				for _, ev := range c.evs {
					b.put(ev)
					time.Sleep(time.Minute) // virtual time (synctest): it is tried again and again
					synctest.Wait()
				}
				was := len(b.turns())
				b.drv.refuse(nil)
				time.Sleep(time.Minute) // virtual time (synctest)
				b.put(svcEvent(3, 80))
				synctest.Wait()
				var gone []uint16
				for _, turn := range b.turns()[was:] {
					for _, k := range turn.Gone {
						gone = append(gone, k.Port)
					}
				}
				slices.Sort(gone)
				if !slices.Equal(gone, c.gone) {
					t.Errorf("told as gone: ports %v, not %v", gone, c.gone)
				}
				if n := len(b.Engine.tried) + len(b.Engine.untold); n > 0 {
					t.Errorf("%d Services are still to be told", n)
				}
			})
		})
	}
}

// A key that a failed write attempted and a later sync reported as gone is not reported again, whether that sync decided the
// Service itself or found it decided, and while another Service is still in quarantine.
func TestWhatWasTriedIsToldOnce(t *testing.T) {
	for name, quarantined := range map[string]bool{"all are told": false, "one is in quarantine": true} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				if quarantined {
					b.drv.refuse(func(op dataplane.Op) bool { return op.Key == vip(7) })
					b.put(svcEvent(7, 80), sliceEvent(7, 7))
					synctest.Wait()
				}
				refused := b.drv.fail
				b.drv.failAll()
				b.put(svcEvent(1, 81))
				synctest.Wait()
				b.drv.mu.Lock()
				b.drv.fail = refused
				b.drv.mu.Unlock()
				b.put(svcEvent(1, 82))  // decided by the turn that works
				time.Sleep(time.Second) // virtual time (synctest): the retry
				synctest.Wait()
				was := len(b.turns())
				b.put(svcEvent(1, 83))
				time.Sleep(time.Second) // virtual time (synctest)
				synctest.Wait()
				for _, turn := range b.turns()[was:] {
					for _, k := range turn.Gone {
						if k.Port != 82 {
							t.Errorf("port %d is told as gone again", k.Port)
						}
					}
				}
			})
		})
	}
}

// While no write works, what is remembered of one Service is bounded.
func TestWhatIsRememberedOfFailedWritesIsBounded(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.drv.failAll()
		for i := range uint16(3 * maxTried) {
			b.put(svcEvent(1, 1000+i))
			time.Sleep(time.Minute) // virtual time (synctest): it is tried
		}
		synctest.Wait()
		if n := len(b.Engine.tried[svcEvent(1, 80).Service.Key]); n != maxTried {
			t.Errorf("%d states are remembered", n)
		}
		b.drv.refuse(nil)
		time.Sleep(time.Minute) // virtual time (synctest)
		synctest.Wait()
		if last := b.last(); len(last.Gone) != maxTried || len(b.Engine.tried) > 0 {
			t.Errorf("%d keys told as gone, %d Services remembered", len(last.Gone), len(b.Engine.tried))
		}
	})
}

// A key that a Service releases and claims again before the kernel has applied either is
// not gone.
func TestKeyThatCameBackIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.MinSync = time.Second })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			for _, port := range []uint16{81, 80} {
				time.Sleep(100 * time.Millisecond) // virtual time (synctest)
				b.put(svcEvent(1, port))
			}
			time.Sleep(time.Second) // virtual time (synctest)
			synctest.Wait()
			if last := b.last(); len(last.Gone) > 0 || len(last.Decided) != 1 {
				t.Errorf("told: %v, gone %v", last.Decided, last.Gone)
			}
		})
	})
}

// Two Services that claim one address: the loser's Problem is reported once, and is
// resolved when either Service is deleted.
func TestClaimProblemsEnd(t *testing.T) {
	for name, gone := range map[string]int{"the holder goes": 1, "the loser goes": 2} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				loser := svcEvent(2, 80)
				loser.Service.Value.ClusterIPs = svcEvent(1, 80).Service.Value.ClusterIPs
				b.put(loser)
				synctest.Wait()
				if p := b.last().Problems; len(p) != 1 || p[0].Object != "Service default/svc-00002" {
					t.Fatalf("problems: %v", p)
				}
				b.put(sliceEvent(2, 7))
				synctest.Wait()
				if p := b.last().Problems; len(p) > 0 {
					t.Errorf("told again: %v", p)
				}
				b.put(goneEvent(gone))
				synctest.Wait()
				if w := b.last().Well; len(w) != 1 || w[0] != "Service default/svc-00002" {
					t.Errorf("well: %v", w)
				}
			})
		})
	}
}

// What the source says of a Service and what policy says are problems of one object:
// that one of them is over does not mean that it is well.
func TestProblemsOfOneObjectFromTwoSides(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		both := svcEvent(2, 80)
		both.Service.Value.ClusterIPs = svcEvent(1, 80).Service.Value.ClusterIPs
		both.Problems = []model.Problem{{Object: "Service default/svc-00002", Reason: "odd"}}
		b.put(both)
		synctest.Wait()
		both.Problems = nil
		b.put(both)
		synctest.Wait()
		if last := b.last(); len(last.Well) > 0 || len(last.Problems) != 1 || last.Problems[0].Reason == "odd" {
			t.Errorf("well %v, problems %v", last.Well, last.Problems)
		}
	})
}

// Endpoints beyond what the data plane holds are a problem of their Service.
func TestTooManyBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.MaxBackends = 2 })
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2, 3), svcEvent(2, 80), sliceEvent(2, 1, 2), synced)
			synctest.Wait()
			if p := b.last().Problems; len(p) != 1 || p[0].Object != "Service default/svc-00001" {
				t.Fatalf("problems: %v", p)
			}
			b.put(sliceEvent(1, 1, 2))
			synctest.Wait()
			if w := b.last().Well; len(w) != 1 {
				t.Errorf("well: %v", w)
			}
			// Three endpoints here drain, and one elsewhere is ready: more are in the local list than in the cluster's.
			local, here := svcEvent(3, 80), sliceEvent(3, 1, 2, 3, 4)
			local.Service.Value.ExternalIPs, local.Service.Value.ExternalLocal = []netip.Addr{netip.MustParseAddr("203.0.113.3")}, true
			for i := range 3 {
				ep := &here.Slice.Value.Endpoints[i]
				ep.Node, ep.Ready, ep.Terminating = "n", false, true
			}
			b.put(local, here)
			synctest.Wait()
			if p := b.last().Problems; len(p) != 1 || !strings.Contains(p[0].Reason, "has 3 endpoints, of which the first 2 are served") {
				t.Errorf("problems of the local list: %v", p)
			}
		})
	})
}

// A Load that is not routine is not preempted, also after one that was.
func TestAlarmAfterAnAuditDoesNotGiveWay(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		time.Sleep(time.Hour + time.Second) // virtual time (synctest): an audit, and nothing to repair
		synctest.Wait()
		repaired, loads := b.slowly(), b.drv.count().loads
		b.drv.foreign(func(map[dataplane.Key]string) {})
		time.Sleep(500 * time.Millisecond) // virtual time (synctest): in the midst of the Load
		b.takes(2)
		if n := b.drv.count().loads - loads; n != 1 || !repaired() {
			t.Errorf("%d loads", n)
		}
	})
}
