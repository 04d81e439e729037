package app

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestWaker: the first connection that is handed over wakes it, and ten minutes without any let it sleep, if none is there.
func TestWaker(t *testing.T) {
	now := time.Unix(1e9, 0)
	var taken uint64
	var failing error
	carries := false
	w := newWaker(false)
	w.last, w.now = now, func() time.Time { return now }
	w.read = func(context.Context) (uint64, error) { return taken, failing }
	counts := 0
	w.count = func() { counts++ }
	w.carries = func(context.Context) bool { return carries }
	step := func(what string, after time.Duration, awake, rung bool) {
		t.Helper()
		now = now.Add(after)
		w.look(t.Context())
		heard := false
		select {
		case <-w.bell:
			heard = true
		default:
		}
		if w.awake.Load() != awake || heard != rung {
			t.Errorf("%s: awake %v, bell %v; want %v, %v", what, w.awake.Load(), heard, awake, rung)
		}
	}
	step("nothing", time.Second, false, false)
	step("nothing for long", time.Hour, false, false)
	taken = 1
	step("the first connection", time.Second, true, true)
	step("no other", time.Minute, true, false)
	taken = 0
	step("new rules", time.Minute, true, false)
	taken = 1
	step("a connection after new rules", 9*time.Minute, true, false)
	carries = true
	step("one is still there", 11*time.Minute, true, false)
	carries, failing = false, errors.New("no table")
	step("it cannot look", time.Hour, true, false)
	failing = nil
	step("none any more", 0, false, true)
	taken = 2
	step("again", time.Second, true, true)
	if counts != 1 {
		t.Errorf("conntrack was made to count %d times in 11 looks", counts)
	}
}
