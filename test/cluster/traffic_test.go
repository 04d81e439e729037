package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// traffic is a set of clients that make new connections all the time, from outside and from the node itself, and
// count losses.
type traffic struct {
	t        *testing.T
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	answered atomic.Int64
	lost     atomic.Int64
	flows    []*keptFlow

	mu    sync.Mutex
	first []string // the first losses
}

// keptFlow is a connection that was opened before the disruption and must survive it.
type keptFlow struct {
	flow    *netlab.Flow
	to      frontend
	backend string
}

const (
	requestPause   = 10 * time.Millisecond
	requestTimeout = 3 * time.Second
)

// startTraffic runs until stop is called. Every frontend must work already.
func (e *env) startTraffic(all []frontend) *traffic {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	tr := &traffic{t: e.t, cancel: cancel}
	e.t.Cleanup(func() { cancel(); tr.wg.Wait() })
	for _, f := range all {
		tr.keep(e.lab.Client(), f)
		for _, from := range []*netlab.Host{e.lab.Client(), e.lab.Node()} {
			tr.wg.Go(func() { tr.run(ctx, from, f) })
		}
	}
	tr.goOn()
	return tr
}

func (tr *traffic) run(ctx context.Context, from *netlab.Host, to frontend) {
	tick := time.NewTicker(requestPause)
	defer tick.Stop()
	for {
		// Not derived from ctx: a request in flight when the traffic stops is allowed to finish, and counts.
		one, cancel := context.WithTimeout(context.Background(), requestTimeout)
		r := from.Ask(one, to.proto, to.addr)
		cancel()
		tr.count(from, to, r)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (tr *traffic) count(from *netlab.Host, to frontend, r netlab.Reply) {
	if r.Outcome == netlab.Answered {
		tr.answered.Add(1)
		return
	}
	tr.lost.Add(1)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.first) < 5 {
		tr.first = append(tr.first, fmt.Sprintf("%s from %s to %s %s: %s %v", time.Now().Format("15:04:05.000"), from.Name, to.addr, to.proto, r.Outcome, r.Err))
	}
}

func (tr *traffic) keep(from *netlab.Host, to frontend) {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(tr.t.Context(), requestTimeout)
	defer cancel()
	flow, err := from.Open(ctx, to.proto, to.addr)
	must(tr.t, err)
	tr.t.Cleanup(flow.Close)
	r := flow.Ask(ctx)
	if r.Outcome != netlab.Answered {
		tr.t.Fatalf("open a flow to %s %s: %s (%v)", to.addr, to.proto, r.Outcome, r.Err)
	}
	tr.flows = append(tr.flows, &keptFlow{flow: flow, to: to, backend: r.Backend})
}

// goOn waits until 300 more requests were answered. This proves that traffic really ran in the current state of the
// test.
func (tr *traffic) goOn() {
	tr.t.Helper()
	want, limit := tr.answered.Load()+300, time.After(2*time.Minute)
	tick := time.NewTicker(requestPause)
	defer tick.Stop()
	for tr.answered.Load() < want {
		select {
		case <-limit:
			tr.t.Fatalf("traffic: no 300 requests answered in two minutes; lost %d: %v", tr.lost.Load(), tr.first)
		case <-tick.C:
		}
	}
}

// stop ends the traffic and fails the test if one request was lost or one old connection is gone.
func (tr *traffic) stop() {
	tr.t.Helper()
	tr.goOn()
	tr.cancel()
	tr.wg.Wait()
	if n := tr.lost.Load(); n > 0 {
		tr.t.Errorf("traffic: %d requests lost, %d answered; first: %v", n, tr.answered.Load(), tr.first)
	}
	for _, k := range tr.flows {
		ctx, cancel := context.WithTimeout(tr.t.Context(), requestTimeout)
		if r := k.flow.Ask(ctx); r.Outcome != netlab.Answered || r.Backend != k.backend {
			tr.t.Errorf("old connection to %s %s: got %s, want %s (%v)", k.to.addr, k.to.proto, r, k.backend, r.Err)
		}
		cancel()
	}
	tr.t.Logf("traffic: %d requests answered, %d lost, %d old connections", tr.answered.Load(), tr.lost.Load(), len(tr.flows))
}
