package netlink

import (
	"os"
	"runtime"
	"sync/atomic"
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

// TestGently: a reader yields within a millisecond, and rarely enough that the cost is negligible.
func TestGently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, readings = 100 * time.Microsecond, 1000
		g := Gently(endless{takes}).(*gentle)
		pauses, longest, last := 0, time.Duration(0), time.Now()
		for range readings {
			if n, err := g.Receive(make([]byte, 7), false); n != 7 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			if !g.rest.woke.Equal(last) {
				longest = max(longest, g.rest.woke.Sub(last))
				last = g.rest.woke
				pauses++
			}
		}
		if pauses == 0 || longest > time.Millisecond || pauses > readings/4 {
			t.Errorf("%d pauses in %d readings, and once none for %v", pauses, readings, longest)
		}
	})
}

// TestPause: on one processor what came by a pipe is noticed at the next pause, or at the one after it. To go on at once, or as
// soon as those have gone on who could, would not notice it.
func TestPause(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const messages, most = 200, 10
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	var got atomic.Int32
	go func() {
		for b := make([]byte, 1); ; got.Add(1) {
			if _, err := from.Read(b); err != nil {
				return
			}
		}
	}()
	r, late := Rest{}, 0
	for i := range messages {
		if _, err := to.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for n := 0; int(got.Load()) <= i; n++ {
			if n == most {
				late++
			}
			r.woke = time.Time{}
			r.Pause()
		}
	}
	if late > messages/2 { // the scheduler may be late for its own reasons now and then
		t.Errorf("%d of %d messages were not noticed in %d pauses", late, messages, most)
	}
}

// TestNoRestBesideOthers: who has a processor of his own goes on.
func TestNoRestBesideOthers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	r := Rest{}
	if r.Pause(); r.bell != nil || r.woke.IsZero() {
		t.Errorf("it rested: %+v", r)
	}
	runtime.GOMAXPROCS(1)
	r.woke = time.Time{}
	if r.Pause(); r.bell == nil {
		t.Error("with one processor it did not rest")
	}
}
