package demo

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// patience is how long one request may take.
const patience = time.Second

// askTimes makes n requests, each on a connection of its own, and counts the answers by backend.
func askTimes(ctx context.Context, h *netlab.Host, proto netlab.Protocol, to netip.AddrPort, n int) (counts map[string]int, lost int) {
	counts = map[string]int{}
	for range n {
		if rep := askOnce(ctx, h, proto, to); rep.Outcome == netlab.Answered {
			counts[rep.Backend]++
		} else {
			lost++
		}
	}
	return counts, lost
}

func askOnce(ctx context.Context, h *netlab.Host, proto netlab.Protocol, to netip.AddrPort) netlab.Reply {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return h.Ask(ctx, proto, to)
}

// traffic is clients that ask all the time.
type traffic struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	answered int
	lost     int
	last     map[string]time.Time // when each backend was last chosen: the time its request began
}

func startTraffic(ctx context.Context, h *netlab.Host, targets ...netip.AddrPort) *traffic {
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{cancel: cancel, last: map[string]time.Time{}}
	for _, to := range targets {
		t.done.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				rep := askOnce(ctx, h, netlab.TCP, to)
				if ctx.Err() == nil {
					t.note(began, rep)
				}
				time.Sleep(time.Millisecond) // paces the client; nothing is waited for
			}
		})
	}
	return t
}

func (t *traffic) note(began time.Time, rep netlab.Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rep.Outcome != netlab.Answered {
		t.lost++
		return
	}
	t.answered++
	if began.After(t.last[rep.Backend]) {
		t.last[rep.Backend] = began
	}
}

// stop ends the clients and tells what became of their requests.
func (t *traffic) stop() (answered, lost int) {
	t.cancel()
	t.done.Wait()
	return t.answered, t.lost
}

// lastOf is when the backend was last chosen.
func (t *traffic) lastOf(backend string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[backend]
}

// wait returns when n more requests were answered or lost; it is bounded by ctx.
func (t *traffic) wait(ctx context.Context, n int) {
	t.mu.Lock()
	goal := t.answered + t.lost + n
	t.mu.Unlock()
	for ctx.Err() == nil {
		t.mu.Lock()
		reached := t.answered+t.lost >= goal
		t.mu.Unlock()
		if reached {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
