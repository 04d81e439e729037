package relay

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A connection in the wheel is handled when it is due, not before and two ticks later at
// most, however far that is, and one that was taken out is not.
func TestWheel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var x wheel
	now := time.Duration(0)
	want := map[*conn]time.Duration{}
	for range 20_000 {
		switch rng.IntN(4) {
		case 0, 1:
			c, due := &conn{}, now+time.Duration(rng.Int64N(int64(40*time.Second)))
			x.put(c, due, now)
			want[c] = due
		case 2:
			for c, due := range want { // any
				if sooner := due - time.Second; sooner > now {
					x.put(c, due+time.Hour, now) // is ignored: it is in for sooner
					x.put(c, sooner, now)
					want[c] = sooner
				} else {
					x.drop(c)
					delete(want, c)
				}
				break
			}
		default:
			now += time.Duration(rng.Int64N(int64(tickEvery)))
			for _, c := range x.due(now) {
				due, known := want[c]
				switch {
				case !known:
					t.Fatal("one that was taken out is due")
				case due > now: // its round was cut to one turn of the wheel
					x.put(c, due, now)
				default:
					delete(want, c)
				}
			}
		}
		if x.count != len(want) {
			t.Fatalf("the wheel counts %d, want %d", x.count, len(want))
		}
		for c, due := range want {
			if due < now-2*tickEvery {
				t.Fatalf("at %s one is forgotten that was due at %s, in: %t", now, due, c.link.in)
			}
		}
	}
}

// A clock that stood still for long, as of a machine that slept, makes all due.
func TestWheelAfterSleep(t *testing.T) {
	var x wheel
	for i := range 300 {
		x.put(&conn{}, time.Duration(i)*tickEvery/3, 0)
	}
	if n := len(x.due(time.Hour)); n != 300 || x.count != 0 {
		t.Errorf("%d of 300 are due, %d are left", n, x.count)
	}
}
