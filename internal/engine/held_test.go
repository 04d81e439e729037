package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// perhaps returns a driver's error for a rejected write whose cause may be a stale actual state.
func perhaps(k dataplane.Key, why string) error {
	return fmt.Errorf("%w: %w", dataplane.ErrConflict, &dataplane.InvalidError{Keys: []dataplane.Key{k}, Err: errors.New(why)})
}

// A Service is rejected at the start of the agent. Its objects in the kernel refer to a
// chain without an owner: the chain stays, because it cannot be deleted, and all other
// Services are applied.
func TestHeldKeepsWhatItLeadsTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		chain := key(kindChain, "lb-7")
		b.drv.kernel[chain], b.drv.kernel[vip(1)] = "rules", "goto lb-7"
		refused := true
		b.drv.fail = func(batch dataplane.Batch) error {
			for _, op := range batch.Ops {
				switch {
				case op.Key == vip(1) && refused:
					return &dataplane.InvalidError{Keys: []dataplane.Key{vip(1)}, Err: errors.New("EINVAL")}
				case op.Key == chain && op.Want == "" && b.drv.kernel[vip(1)] == "goto lb-7":
					return perhaps(chain, "EBUSY")
				}
			}
			return nil
		}
		run(t, b, func() {
			b.put(svcEvent(1, 80), svcEvent(2, 80), synced)
			time.Sleep(time.Minute) // virtual time (synctest): lingering ends
			synctest.Wait()
			b.put(svcEvent(3, 80))
			synctest.Wait()
			k, last := b.drv.snapshot(), b.last()
			if k[vip(1)] != "goto lb-7" || k[chain] == "" || k[vip(2)] == "" || k[vip(3)] == "" || last.Err != nil || last.Held != 1 {
				t.Fatalf("in the kernel: %v; told: %+v", k, last)
			}
			for _, turn := range b.turns() {
				if turn.Err != nil {
					t.Errorf("a turn failed: %v", turn.Err)
				}
			}
			b.drv.mu.Lock()
			refused = false
			b.drv.mu.Unlock()
			time.Sleep(time.Hour) // virtual time (synctest): tried again, lingering ends
			synctest.Wait()
			if k := b.drv.snapshot(); k[vip(1)] != "reject" || k[chain] != "" || b.last().Held != 0 {
				t.Fatalf("in the kernel: %v; told: %+v", k, b.last())
			}
		})
	})
}

// Another program deletes an object that a quarantined Service keeps, and the object cannot
// be restored: it is abandoned, and all other Services are applied.
func TestHeldThatCannotBePutBackIsGivenUp(t *testing.T) {
	watched(t, func(t *testing.T, b *bench) {
		b.drv.mu.Lock()
		b.drv.fail = func(batch dataplane.Batch) error {
			for _, op := range batch.Ops {
				switch {
				case op.Key == vip(1) && op.Have == "":
					return perhaps(vip(1), "ENOENT")
				case op.Key == vip(1):
					return &dataplane.InvalidError{Keys: []dataplane.Key{vip(1)}, Err: errors.New("EINVAL")}
				}
			}
			return nil
		}
		b.drv.mu.Unlock()
		b.put(sliceEvent(1, 5, 6, 7))
		synctest.Wait()
		if b.last().Held != 1 {
			t.Fatalf("told: %+v", b.last())
		}
		b.drv.mu.Lock()
		delete(b.drv.kernel, vip(1))
		b.drv.moved = true
		b.drv.ring()
		b.drv.mu.Unlock()
		b.put(svcEvent(2, 80))
		synctest.Wait()
		k, last := b.drv.snapshot(), b.last()
		if k[vip(1)] != "" || k[vip(2)] != "reject" || last.Err != nil || last.Pending > 0 {
			t.Fatalf("in the kernel: %v; told: %+v", k, last)
		}
	})
}

// A driver without transactions has written some objects before one is rejected: the Service is quarantined, the rest is applied,
// and the differences of the next read count as the agent's own writes, not as drift.
func TestWrittenInPartIsNobodyElsesDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(newMemDriver(), nil)
		b.drv.fail = func(batch dataplane.Batch) error {
			for _, op := range batch.Ops {
				if op.Key == vip(1) && op.Want != "" {
					return errors.Join(&dataplane.InvalidError{Keys: []dataplane.Key{op.Key}, Err: errors.New("ENOENT")}, dataplane.ErrInPart)
				}
				if op.Want != "" {
					b.drv.kernel[op.Key] = op.Want
				}
			}
			return nil
		}
		run(t, b, func() {
			b.put(svcEvent(0, 80), svcEvent(1, 80), svcEvent(2, 80), synced)
			synctest.Wait()
			time.Sleep(time.Hour) // virtual time (synctest): it is tried again, and refused
			synctest.Wait()
			if k := b.drv.snapshot(); k[vip(0)] == "" || k[vip(1)] != "" || k[vip(2)] == "" || b.last().Held != 1 {
				t.Errorf("in the kernel: %v; told: %+v", k, b.last())
			}
			for _, turn := range b.turns() {
				if turn.Err != nil || len(turn.Drift) > 0 || turn.Conflicts > 0 {
					t.Errorf("a turn tells of an error %v, of others' changes %v, of %d conflicts", turn.Err, turn.Drift, turn.Conflicts)
				}
			}
		})
	})
}
