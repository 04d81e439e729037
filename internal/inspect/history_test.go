package inspect

import (
	"fmt"
	"testing"
	"time"
)

// TestHistory: the last half hour, minute by minute, and the last things that happened; both of a fixed size.
func TestHistory(t *testing.T) {
	var r Recorder
	begin := time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC)
	for i := range 90 {
		at := begin.Add(time.Duration(i) * time.Minute)
		r.Turn(at.Add(time.Second), 2, time.Millisecond)
		r.Turn(at.Add(2*time.Second), i, time.Duration(i)*time.Millisecond)
		r.Happen(at, fmt.Sprintf("repair %d", i))
		r.Happen(at.Add(time.Second), fmt.Sprintf("repair %d", i)) // once more the same
	}
	now := begin.Add(95*time.Minute + 30*time.Second) // five minutes and a half of rest
	h := r.History(now)
	if len(h.Minutes) != historyMinutes || !h.Minutes[historyMinutes-1].At.Equal(begin.Add(95*time.Minute)) || !h.Minutes[0].At.Equal(begin.Add(66*time.Minute)) {
		t.Fatalf("%+v", h.Minutes)
	}
	if m := h.Minutes[0]; m.Operations != 68 || m.Longest != 66*time.Millisecond {
		t.Errorf("the first: %+v", m)
	}
	if m := h.Minutes[historyMinutes-1]; m.Operations != 0 || m.Longest != 0 {
		t.Errorf("nothing was done in the last: %+v", m)
	}
	if len(h.Happened) != mostHappenings || h.Happened[0].What != "repair 89" || !h.Happened[0].At.Equal(begin.Add(89*time.Minute+time.Second)) || h.Happened[49].What != "repair 40" {
		t.Errorf("%d: %+v", len(h.Happened), h.Happened)
	}
}
