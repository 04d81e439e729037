package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// twoPorts is a Service with the ports n and n+1.
func twoPorts(i int, n uint16) model.Event {
	ev := svcEvent(i, n)
	ev.Service.Value.Ports[0].Name = "a"
	ev.Service.Value.Ports = append(ev.Service.Value.Ports, model.ServicePort{Name: "b", Protocol: model.TCP, Port: n + 1})
	return ev
}

// TestEachLostKeyIsReported: several Services change both of their ports in one turn.
// The same holds when a failed write came in between, with ports of its own.
func TestEachLostKeyIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		run(t, b, func() {
			b.put(twoPorts(1, 80), twoPorts(2, 80), twoPorts(3, 80), synced)
			synctest.Wait()
			b.put(twoPorts(1, 90), twoPorts(2, 90), twoPorts(3, 90))
			synctest.Wait()
			b.expectGone(t, 6, 80, 81)
			b.drv.mu.Lock()
			b.drv.fail = func(dataplane.Batch) error { return errors.New("no memory, says the test") }
			b.drv.mu.Unlock()
			b.put(twoPorts(1, 100), twoPorts(2, 100), twoPorts(3, 100))
			synctest.Wait()
			b.drv.refuse(nil)
			b.put(twoPorts(1, 110), twoPorts(2, 110), twoPorts(3, 110))
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			b.expectGone(t, 12, 90, 91, 100, 101)
		})
	})
}

// expectGone wants n keys lost in the last turn that reports any, all of these ports.
func (b *bench) expectGone(t *testing.T, n int, ports ...uint16) {
	t.Helper()
	var gone []model.FrontendKey
	for _, turn := range b.turns() {
		if len(turn.Gone) > 0 {
			gone = turn.Gone
		}
	}
	strange := slices.ContainsFunc(gone, func(k model.FrontendKey) bool { return !slices.Contains(ports, k.Port) })
	if len(gone) != n || strange {
		t.Errorf("lost: %v, want %d keys of the ports %v", gone, n, ports)
	}
}

// TestEachRefusedObjectIsReported: the kernel refuses both ports of two Services. The
// view shows each, and which objects of a third Service are written.
func TestEachRefusedObjectIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		b.drv.refuse(func(op dataplane.Op) bool {
			return op.Key.Kind == kindVerdict && !strings.HasPrefix(op.Key.ID, "10.96.0.3:")
		})
		run(t, b, func() {
			b.put(twoPorts(1, 80), twoPorts(2, 80), twoPorts(3, 80), synced)
			synctest.Wait()
			for _, q := range b.last().Quarantined {
				if len(q.Objects) != 2 || slices.Contains(q.Objects, "") {
					t.Errorf("%v: refused objects %q, want two", q.Service, q.Objects)
				}
			}
			if err := b.Inspect(t.Context(), func(v View) { expectView(t, v) }); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func expectView(t *testing.T, v View) {
	for i, want := range map[int]bool{1: true, 2: true, 3: false} {
		k := svcEvent(i, 80).Service.Key
		held, is := v.HeldOf(k)
		if is != want || want && (held.Service != k || len(held.Objects) != 2) {
			t.Errorf("%v: held %v: %+v, want %v", k, is, held, want)
		}
		if want {
			continue
		}
		written, pending := v.Objects(k)
		if len(written) != 2 || len(pending) > 0 || written[0].Key.Kind != kindVerdict {
			t.Errorf("%v: written %v, pending %v", k, written, pending)
		}
	}
}

// TestEachUnservedPortIsReported: the data plane serves the first port and neither of the others.
func TestEachUnservedPortIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) {
			p.Unsupported = func(f *model.Frontend) string {
				if f.Key.Port == 80 {
					return ""
				}
				return "no such port, says the test"
			}
		})
		run(t, b, func() {
			three := twoPorts(1, 80)
			three.Service.Value.Ports = append(three.Service.Value.Ports, model.ServicePort{Name: "c", Protocol: model.TCP, Port: 82})
			b.put(three, synced)
			synctest.Wait()
			if list := b.last().Problems; len(list) != 2 || !strings.HasPrefix(list[0].Reason, "port b: ") || !strings.HasPrefix(list[1].Reason, "port c: ") {
				t.Errorf("problems: %+v, want one of port b and one of port c", list)
			}
		})
	})
}
