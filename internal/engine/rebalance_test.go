package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// inSlice puts endpoints into one of several slices of a Service.
func inSlice(i int, name string, eps ...int) model.Event {
	ev := sliceEvent(i, eps...)
	ev.Slice.Key.Name += name
	ev.Slice.Value.Key.Name += name
	return ev
}

func noSlice(i int, name string) model.Event {
	ev := inSlice(i, name)
	ev.Slice.Value = nil
	return ev
}

// knows reports whether an endpoint serves in the last report to the observers.
func (b *bench) knows(addr netip.Addr) bool {
	for _, d := range b.last().Decided {
		for _, f := range d.Result.Frontends {
			for _, e := range f.Backends {
				if e.Addr == addr {
					return true
				}
			}
		}
	}
	return false
}

// An endpoint that is moved from one slice to another, and is in neither for a while,
// is never gone: nothing is written and nobody is told that it ended.
func TestRebalanceOfSlices(t *testing.T) {
	for name, move := range map[string][]model.Event{
		"from slice to slice":      {inSlice(1, "-a", 1), inSlice(1, "-b", 3, 2)},
		"into a slice made anew":   {noSlice(1, "-b"), inSlice(1, "-c", 3)},
		"the one slice made anew":  {noSlice(1, "-a"), inSlice(1, "-b", 1, 2, 3)},
		"and back again in slices": {inSlice(1, "-a", 1), inSlice(1, "-a", 1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), nil)
				run(t, b, func() {
					b.put(svcEvent(1, 80), inSlice(1, "-a", 1, 2), inSlice(1, "-b", 3), synced)
					synctest.Wait()
					writes, kernel := b.drv.count().applies, b.drv.snapshot()
					for _, ev := range move {
						b.put(ev)
						time.Sleep(90 * time.Millisecond) // virtual time (synctest)
						synctest.Wait()
						for e := 1; e <= 3; e++ {
							if a := netip.AddrFrom4([4]byte{10, 128, 0, byte(e)}); !b.knows(a) {
								t.Errorf("%s is told to have ended", a)
							}
						}
					}
					time.Sleep(time.Second) // virtual time (synctest)
					synctest.Wait()
					if n := b.drv.count().applies - writes; n != 0 || b.drv.snapshot()[vip(1)] != kernel[vip(1)] {
						t.Errorf("%d writes", n)
					}
					if len(b.leaving) > 0 {
						t.Errorf("still waiting for %v", b.leaving)
					}
				})
			})
		})
	}
}

// What can be no move goes in at once; what may be one, but is a removal, within 100 ms.
func TestRemovalsGoIn(t *testing.T) {
	for name, c := range map[string]struct {
		ev     model.Event
		within time.Duration
	}{
		"from a Service of one slice":           {inSlice(2, "-a", 5), time.Millisecond},
		"exchanged in a Service of one slice":   {inSlice(2, "-a", 5, 7), time.Millisecond},
		"all of a Service of one slice":         {inSlice(2, "-a"), time.Millisecond},
		"of the Service":                        {goneEvent(1), time.Millisecond},
		"added to a Service of two slices":      {inSlice(1, "-a", 1, 2, 9), time.Millisecond},
		"one that another slice has":            {inSlice(3, "-a", 1), time.Millisecond},
		"of the only slice of those ports":      {inSlice(4, "-a", 1), time.Millisecond},
		"of the only slice of a family":         {inSlice(7, "-a", 1), time.Millisecond},
		"from a Service of two slices":          {inSlice(1, "-a", 1), departPause + time.Millisecond},
		"all of a slice of a Service of two":    {inSlice(1, "-a"), departPause + time.Millisecond},
		"of a slice":                            {noSlice(1, "-b"), departPause + time.Millisecond},
		"exchanged in a Service of two slices":  {inSlice(1, "-a", 1, 9), departPause + time.Millisecond},
		"many from a Service of two slices":     {inSlice(5, "-a"), departPause + time.Millisecond},
		"many that another slice has, of a few": {inSlice(6, "-a"), departPause + time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), nil)
				run(t, b, func() {
					b.put(svcEvent(1, 80), inSlice(1, "-a", 1, 2), inSlice(1, "-b", 3),
						svcEvent(2, 80), inSlice(2, "-a", 5, 6),
						svcEvent(3, 80), inSlice(3, "-a", 1, 2), inSlice(3, "-b", 2, 3),
						svcEvent(4, 80), inSlice(4, "-a", 1, 2), otherPorts(inSlice(4, "-b", 3)),
						svcEvent(5, 80), inSlice(5, "-a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), inSlice(5, "-b", 11),
						svcEvent(6, 80), inSlice(6, "-a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), inSlice(6, "-b", 1, 2, 3, 4, 5),
						svcEvent(7, 80), inSlice(7, "-a", 1, 2), ofIPv6(inSlice(7, "-b", 3)), synced)
					synctest.Wait()
					b.put(c.ev)
					time.Sleep(c.within) // virtual time (synctest)
					synctest.Wait()
					want := newBench(newMemDriver(), nil)
					if err := b.Inspect(t.Context(), func(v View) {
						for k := range v.State().Keys() {
							svc, list := v.State().Service(k)
							if svc != nil {
								want.put(model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: k, Value: svc}})
							}
							for _, s := range list {
								want.put(model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: s.Key, Value: s}})
							}
						}
					}); err != nil {
						t.Fatal(err)
					}
					run(t, want, func() { want.put(synced); synctest.Wait() })
					expectSame(t, b.drv.snapshot(), want.drv.snapshot())
				})
			})
		})
	}
}

func ofIPv6(ev model.Event) model.Event {
	ev.Slice.Value.Family = model.IPv6
	for i := range ev.Slice.Value.Endpoints {
		ev.Slice.Value.Endpoints[i].Addr = netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1))
	}
	return ev
}

// An endpoint that has arrived is not kept for where it came from: what happens to it
// next goes in at once.
func TestArrivedEndpointIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), inSlice(1, "-a", 1, 2), inSlice(1, "-b", 3), synced)
			synctest.Wait()
			ended := inSlice(1, "-b", 3, 2)
			ended.Slice.Value.Endpoints[1].Ready, ended.Slice.Value.Endpoints[1].Serving = false, false
			for _, ev := range []model.Event{inSlice(1, "-a", 1), inSlice(1, "-b", 3, 2), ended} {
				b.put(ev)
				synctest.Wait()
			}
			if b.knows(netip.AddrFrom4([4]byte{10, 128, 0, 2})) {
				t.Error("an endpoint that is not ready any more serves")
			}
		})
	})
}

func otherPorts(ev model.Event) model.Event {
	ev.Slice.Value.Ports = []model.SlicePort{{Name: "other", Protocol: model.TCP, Port: 9090}}
	return ev
}

// A change of one Service goes in as a whole, whatever fits into a transaction: a pool
// that shrinks before its rule does would leave connections without an endpoint.
func TestAChangeOfOneServiceIsNotCut(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"as it comes": func(b *bench) {
			for i := range 20 {
				b.mb.Put(sliceEvent(i, 9*i, 9*i+1, 9*i+2))
			}
		},
		"after a load": func(b *bench) {
			b.drv.foreign(func(k map[dataplane.Key]string) {
				for i := range 20 {
					k[vip(i)] = "goto lb-4"
					pool := key(kindPool, svcEvent(i, 80).Service.Value.ClusterIPs[0].String()+":80/TCP")
					k[pool] = k[pool][:16]
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(newMemDriver(), func(p *Params) { p.ChunkOps = 5 })
				run(t, b, func() {
					for i := range 20 {
						b.put(svcEvent(i, 80), sliceEvent(i, 9*i, 9*i+1, 9*i+2, 9*i+3, 9*i+4, 9*i+5, 9*i+6, 9*i+7))
					}
					b.put(synced)
					synctest.Wait()
					b.drv.mu.Lock()
					b.drv.fail = func(batch dataplane.Batch) error {
						halves := map[string]int{}
						for _, op := range batch.Ops {
							if op.Have != "" && op.Want != "" {
								halves[op.Key.ID]++
							}
						}
						for id, n := range halves {
							if n != 2 {
								t.Errorf("%q is changed by halves", id)
							}
						}
						return nil
					}
					b.drv.mu.Unlock()
					writes := b.drv.count().applies
					change(b)
					synctest.Wait()
					if n := b.drv.count().applies - writes; n < 4 {
						t.Errorf("all in %d transactions: this test shows nothing", n)
					}
				})
			})
		})
	}
}

// An endpoint that leaves one of fifty slices is looked for in all of them: that must
// cost no memory for each.
func TestLookingForAnEndpointAllocatesLittle(t *testing.T) {
	old := inSlice(1, "-0", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10).Slice.Value
	list := []*model.Slice{inSlice(1, "-0", 1, 2, 3, 4, 5, 6, 7, 8, 9, 250).Slice.Value}
	for i := range 49 {
		list = append(list, inSlice(1, "-"+string(rune('A'+i)), 11+4*i, 12+4*i, 13+4*i, 14+4*i).Slice.Value)
	}
	var lost *model.Slice
	n := testing.AllocsPerRun(100, func() { lost = lostEndpoints(old, list) })
	if lost == nil || len(lost.Endpoints) != 1 || lost.Endpoints[0].Addr != old.Endpoints[9].Addr {
		t.Fatalf("lost: %v", lost)
	}
	if n > 4 {
		t.Errorf("%.0f allocations, want at most 4", n)
	}
}
