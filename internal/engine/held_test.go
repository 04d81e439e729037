package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// perhaps is what a driver says of a refusal that may be the fault of our belief.
func perhaps(k dataplane.Key, why string) error {
	return fmt.Errorf("%w: %w", dataplane.ErrConflict, &dataplane.InvalidError{Keys: []dataplane.Key{k}, Err: errors.New(why)})
}

// A Service is refused at our start. What it has in the kernel leads to a chain that
// nobody knows of: the chain stays, for it cannot be deleted, and all others go in.
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

// What a refused Service keeps is taken away by somebody, and cannot be put back: it
// is given up, and all others go in.
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

// A driver that cannot write all at once is refused one object and has written others before it: the Service is put aside, the rest goes in, and
// what is read again is our own writing, not somebody else's.
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
