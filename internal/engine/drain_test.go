package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// drainDriver is a data plane whose chains linger for an hour, unless they are idle.
type drainDriver struct {
	*memDriver
	idle  bool // under the mutex of memDriver, as all that follows
	err   error
	asked [][]dataplane.Key
}

func (d *drainDriver) Linger(k dataplane.Key) time.Duration {
	if k.Kind == kindChain {
		return time.Hour
	}
	return 0
}

func (d *drainDriver) Drained(_ context.Context, lingering []dataplane.Key) ([]dataplane.Key, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, lingering)
	if !d.idle {
		return nil, d.err
	}
	return lingering, nil
}

func (d *drainDriver) state() (asked int, last []dataplane.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asked) > 0 {
		last = d.asked[len(d.asked)-1]
	}
	return len(d.asked), last
}

// TestWhatIsDrainedGoesBeforeItsTime: the driver is not queried while no object lingers, or more often than each drainPause.
func TestWhatIsDrainedGoesBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &drainDriver{memDriver: newMemDriver(), err: errors.New("no answer")}
		b := newBench(d.memDriver, func(p *Params) { p.Driver = d })
		chains := []dataplane.Key{key(kindChain, "lb-3"), key(kindChain, "lb-4")}
		there := func() (n int) {
			for _, k := range chains {
				n += len(d.snapshot()[k]) / len("rules")
			}
			return n
		}
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2, 3), svcEvent(2, 80), sliceEvent(2, 1, 2, 3, 4), synced)
			time.Sleep(time.Minute) // virtual time (synctest)
			if n, _ := d.state(); n != 0 {
				t.Fatalf("asked %d times about nothing", n)
			}
			b.put(sliceEvent(1, 1, 2), sliceEvent(2, 1, 2))
			time.Sleep(10*drainPause - time.Second) // virtual time (synctest)
			if n, last := d.state(); n != 10 || len(last) != 2 || !slices.Contains(last, chains[0]) || !slices.Contains(last, chains[1]) || there() != 2 {
				t.Fatalf("asked %d times, the last time about %v; %d are there", n, last, there())
			}
			d.mu.Lock()
			d.idle = true
			d.mu.Unlock()
			time.Sleep(drainPause) // virtual time (synctest)
			if n, _ := d.state(); n != 11 || there() != 0 {
				t.Fatalf("asked %d times; %d are there", n, there())
			}
			time.Sleep(10 * drainPause) // virtual time (synctest)
			if n, _ := d.state(); n != 11 {
				t.Fatalf("asked %d times, also about nothing", n)
			}
		})
	})
}
