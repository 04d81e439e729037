package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// refuse makes the kernel refuse objects, all of a batch in one answer.
func (d *memDriver) refuse(bad func(op dataplane.Op) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = nil
	if bad == nil {
		return
	}
	d.fail = func(b dataplane.Batch) error {
		err := &dataplane.InvalidError{Err: errors.New("EINVAL, says the test")}
		for _, op := range b.Ops {
			if bad(op) {
				err.Keys = append(err.Keys, op.Key)
			}
		}
		if len(err.Keys) > 0 {
			return err
		}
		return nil
	}
}

func creates(k dataplane.Key) func(dataplane.Op) bool {
	return func(op dataplane.Op) bool { return op.Key == k && op.Want != "" }
}

// Objects that the kernel refuses cost their Services only, however many there are,
// also in a rebuild; no Load follows. They are tried again.
func TestRefusedObjectsCostTheirServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		b.drv.refuse(func(op dataplane.Op) bool {
			return op.Key.Kind == kindVerdict && strings.HasSuffix(op.Key.ID, "7:80/TCP")
		})
		run(t, b, func() {
			for i := range 100 {
				b.put(svcEvent(i, 80), sliceEvent(i, i))
			}
			b.put(synced)
			synctest.Wait()
			k := b.drv.snapshot()
			for i := range 100 {
				if _, in := k[vip(i)]; in == (i%10 == 7) {
					t.Fatalf("service %d in the kernel: %v", i, in)
				}
			}
			last, n := b.last(), b.drv.count()
			if last.Held != 10 || last.Err != nil || len(last.Quarantined) != 10 || n.loads != 1 || n.applies != 2 || len(last.Decided) != 90 {
				t.Fatalf("%d held, %d told, %d decided, error %v, %d loads, %d writes", last.Held, len(last.Quarantined), len(last.Decided), last.Err, n.loads, n.applies)
			}
			b.drv.refuse(nil)
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if _, in := b.drv.snapshot()[vip(7)]; !in || b.last().Held != 0 || len(b.last().Decided) != 10 {
				t.Fatalf("not tried again: %+v", b.last())
			}
		})
	})
}

func TestRefusedInARebuild(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.put(svcEvent(2, 80), sliceEvent(2, 5), svcEvent(3, 80))
		synctest.Wait()
		full := true
		b.drv.mu.Lock()
		b.drv.fail = func(batch dataplane.Batch) error {
			if len(batch.Rebuild) == 0 && full {
				return &dataplane.RebuildError{Families: b.p.Families[:1], Why: "a set is full"}
			}
			full = false
			for _, op := range batch.Ops {
				if op.Key == vip(2) && op.Want != "goto lb-1" {
					return &dataplane.InvalidError{Keys: []dataplane.Key{op.Key}, Err: errors.New("EINVAL, says the test")}
				}
			}
			return nil
		}
		b.drv.mu.Unlock()
		b.put(sliceEvent(2, 5, 6)) // one event, so one turn
		synctest.Wait()
		k, n := b.drv.snapshot(), b.drv.count()
		if k[vip(2)] != "goto lb-1" || k[vip(3)] != "reject" || k[vip(1)] != "goto lb-2" || n.rebuilds != 1 || n.loads != 1 {
			t.Fatalf("%d rebuilds, %d loads: %v", n.rebuilds, n.loads, k)
		}
		if last := b.last(); len(last.Rebuilt) != 1 || len(last.Quarantined) != 1 || last.Err != nil {
			t.Fatalf("told: %+v", last)
		}
	})
}

// A Service on :80 moves to :81, which the kernel rejects: :80 continues to serve and the
// observers are notified of neither, until :81 is applied.
func TestRefusedChangeOfPorts(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		other := key(kindVerdict, "10.96.0.1:81/TCP")
		b.drv.refuse(creates(other))
		was := len(b.turns())
		b.put(svcEvent(1, 81), svcEvent(2, 80))
		synctest.Wait()
		for range 2 {
			k := b.drv.snapshot()
			if k[vip(1)] != "goto lb-2" || k[other] != "" || k[vip(2)] != "reject" {
				t.Fatalf("in the kernel: %v", k)
			}
			for _, turn := range b.turns()[was:] {
				if len(turn.Gone) > 0 || slices.ContainsFunc(turn.Decided, func(d Decided) bool { return d.Key.Name == "svc-00001" }) {
					t.Fatalf("what is not in the kernel is told: %+v", turn)
				}
			}
			time.Sleep(40 * time.Hour) // virtual time (synctest): retries, lingering
			synctest.Wait()
		}
		if b.last().Held != 1 {
			t.Fatalf("%d held", b.last().Held)
		}
		b.drv.refuse(nil)
		time.Sleep(maxRetry) // virtual time (synctest)
		synctest.Wait()
		k, last := b.drv.snapshot(), b.last()
		if k[vip(1)] != "" || k[other] != "goto lb-2" {
			t.Fatalf("in the kernel: %v", k)
		}
		if len(last.Decided) != 1 || len(last.Gone) != 1 || last.Gone[0].Port != 80 {
			t.Fatalf("told: %v, gone %v", last.Decided, last.Gone)
		}
	})
}

// The pause between tries grows: a refusal that lasts costs two writes an hour.
func TestQuarantineBacksOff(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.drv.refuse(creates(vip(2)))
		b.put(svcEvent(2, 80))
		synctest.Wait()
		before := b.drv.count().applies
		time.Sleep(10 * time.Hour) // virtual time (synctest)
		synctest.Wait()
		if n := b.drv.count().applies - before; n < 20 || n > 30 {
			t.Errorf("%d tries in ten hours", n)
		}
		b.put(sliceEvent(2, 8)) // a new desired state: the backoff starts again
		synctest.Wait()
		before = b.drv.count().applies
		time.Sleep(time.Minute) // virtual time (synctest)
		synctest.Wait()
		if n := b.drv.count().applies - before; n < 2 {
			t.Errorf("%d tries in the first minute after a change", n)
		}
	})
}

// A rejected base object belongs to no Service: no Service is quarantined, everything is
// retried, and it is applied when the kernel accepts it.
func TestRefusedBaseObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		b.drv.refuse(creates(key(dataplane.KindRoot, "")))
		run(t, b, func() {
			b.put(svcEvent(1, 80), synced)
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if last := b.last(); last.Err == nil || last.Held != 0 || len(last.Quarantined) > 0 {
				t.Fatalf("told: %+v", last)
			}
			b.drv.refuse(nil)
			time.Sleep(time.Minute) // virtual time (synctest)
			synctest.Wait()
			if last := b.last(); last.Err != nil || len(b.drv.snapshot()) != 2 {
				t.Fatalf("told: %+v", last)
			}
		})
	})
}

// A rejected write whose cause may be a stale actual state (the object exists already)
// requires a read of the kernel before any Service is quarantined.
func TestRefusalThatDoubtsOurBelief(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		t.Run(fmt.Sprint("lasts ", lasts), func(t *testing.T) {
			watched(t, func(t *testing.T, b *bench) {
				there := b.drv.count().loads
				b.drv.mu.Lock()
				b.drv.kernel[vip(2)] = "drop" // without an alarm
				b.drv.fail = func(batch dataplane.Batch) error {
					for _, op := range batch.Ops {
						if op.Key == vip(2) && (op.Have == "" || lasts) {
							return fmt.Errorf("EEXIST: %w: %w", dataplane.ErrConflict, &dataplane.InvalidError{Keys: []dataplane.Key{vip(2)}, Err: errors.New("EEXIST")})
						}
					}
					return nil
				}
				b.drv.mu.Unlock()
				b.put(svcEvent(2, 80))
				synctest.Wait()
				want, held, loads := "reject", 0, 1
				if lasts { // read before the quarantine, and after it, because the actual state is then known to be stale
					want, held, loads = "drop", 1, 2
				}
				if last := b.last(); b.drv.snapshot()[vip(2)] != want || last.Held != held || last.Err != nil || b.drv.count().loads-there != loads {
					t.Fatalf("%q is there, told %+v, %d loads", b.drv.snapshot()[vip(2)], last, b.drv.count().loads-there)
				}
			})
		})
	}
}

// A thousand refused objects that the kernel names one by one delay the others by no
// more than the writes take, and cost no Load.
func TestThousandRefusalsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), func(p *Params) { p.ChunkOps = 1 << 20 })
		b.drv.fail = func(batch dataplane.Batch) error {
			for _, op := range batch.Ops {
				if op.Key.Kind == kindVerdict && strings.HasPrefix(op.Want, "reject") {
					return &dataplane.InvalidError{Keys: []dataplane.Key{op.Key}, Err: errors.New("EINVAL, says the test")}
				}
			}
			return nil
		}
		run(t, b, func() {
			const good, bad = 500, 200
			for i := range good {
				b.put(svcEvent(i, 80), sliceEvent(i, i))
			}
			for i := range bad {
				b.put(svcEvent(good+i, 80))
			}
			b.put(synced)
			synctest.Wait()
			n, last := b.drv.count(), b.last()
			if n.loads != 1 || n.applies != bad+1 || last.Held != bad || last.Err != nil || len(last.Decided) != good {
				t.Errorf("%d loads, %d writes, %d held, %d decided, error %v", n.loads, n.applies, last.Held, len(last.Decided), last.Err)
			}
		})
	})
}
