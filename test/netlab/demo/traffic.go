package demo

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// patience is the time limit of one request.
const patience = time.Second

// askTimes sends n requests, each on its own connection, and counts the answers by
// backend.
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

// traffic is a set of clients that send requests continuously.
type traffic struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	answered int
	lost     int
	last     map[string]time.Time // when each backend last received a request: the time when the request began
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
				time.Sleep(time.Millisecond) // limits the rate of the client; it waits for no condition
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

// stop stops the clients and returns how many of their requests were answered and lost.
func (t *traffic) stop() (answered, lost int) {
	t.cancel()
	t.done.Wait()
	return t.answered, t.lost
}

// lastOf returns the time when the last request that the backend answered began.
func (t *traffic) lastOf(backend string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[backend]
}

// wait returns when n more requests were answered or lost, or when ctx ends.
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
