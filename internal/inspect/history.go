package inspect

import (
	"slices"
	"sync"
	"time"
)

const (
	// mostHappenings and historyMinutes bound the size of the History.
	mostHappenings = 50
	historyMinutes = 30
)

// History is the recent activity of the agent.
type History struct {
	Happened []Happening `json:"happened,omitempty"` // newest first
	Minutes  []Minute    `json:"minutes"`            // oldest first, the current one last, without gaps
}

// Happening is an event that an operator may look up later: a repair, a
// disconnection.
type Happening struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Minute is the agent's activity in one minute.
type Minute struct {
	At         time.Time     `json:"at"` // its start
	Operations int           `json:"operations"`
	Longest    time.Duration `json:"longestNanoseconds"` // the slowest sync, until all was in the kernel
}

// Recorder keeps a History in memory of a fixed size. It is safe for concurrent
// use.
type Recorder struct {
	mu       sync.Mutex
	happened []Happening // oldest first
	minutes  [historyMinutes]Minute
}

// Happen records an event. If the same event is repeated, only its last time is kept.
func (r *Recorder) Happen(at time.Time, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.happened); n > 0 && r.happened[n-1].What == what {
		r.happened[n-1].At = at
		return
	}
	if r.happened = append(r.happened, Happening{at, what}); len(r.happened) > mostHappenings {
		r.happened = slices.Delete(r.happened, 0, 1)
	}
}

// Turn records the operations of one sync, and how long it took.
func (r *Recorder) Turn(at time.Time, operations int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begin := at.Truncate(time.Minute)
	m := &r.minutes[minuteOf(begin)]
	if !m.At.Equal(begin) {
		*m = Minute{At: begin}
	}
	m.Operations += operations
	m.Longest = max(m.Longest, took)
}

func minuteOf(begin time.Time) int { return int(begin.Unix() / 60 % historyMinutes) }

// History returns a snapshot of the recorded state.
func (r *Recorder) History(now time.Time) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Happened: slices.Clone(r.happened)}
	slices.Reverse(h.Happened)
	for begin := now.Truncate(time.Minute).Add(-(historyMinutes - 1) * time.Minute); !begin.After(now); begin = begin.Add(time.Minute) {
		m := r.minutes[minuteOf(begin)]
		if !m.At.Equal(begin) {
			m = Minute{At: begin}
		}
		h.Minutes = append(h.Minutes, m)
	}
	return h
}
