package netlink

import (
	"testing"
	"testing/synctest"
	"time"
)

// endless is a Wire with always something in it. Each reading takes some time.
type endless struct{ takes time.Duration }

func (endless) Send([][]byte) error { return nil }

func (e endless) Receive(b []byte, _ bool) (int, error) {
	time.Sleep(e.takes) // synctest's clock, no real time: the kernel takes so long for a datagram
	return len(b), nil
}

// TestGently: others get their turn within a millisecond, and the reading takes at most half as long again for it.
func TestGently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, readings = 100 * time.Microsecond, 1000
		w, began, rested, longest := Gently(endless{takes}), time.Now(), time.Duration(0), time.Duration(0)
		last := began // end of the last pause
		for range readings {
			t0 := time.Now()
			if n, err := w.Receive(make([]byte, 7), false); n != 7 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			if pause := time.Since(t0) - takes; pause > 0 {
				longest = max(longest, t0.Sub(last))
				rested, last = rested+pause, t0.Add(pause)
			}
		}
		if longest == 0 || longest > time.Millisecond {
			t.Errorf("it reads for %v without a pause", longest)
		}
		if work := readings * takes; rested > work/2 {
			t.Errorf("it pauses for %v while it reads for %v", rested, work)
		}
	})
}
