package kit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// traffic is a client that continuously sends requests during the steps, each on a new connection, one after the other.
type traffic struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	answered int
	lost     []string
}

// startTraffic reads `send NAME from HOST to ADDRESS:PORT [PROTOCOL]`.
func (r *run) startTraffic(ctx context.Context, s step) error {
	a := s.args
	if len(a) < 5 || a[1] != "from" || a[3] != "to" {
		return errBadLine
	}
	h, err := r.lab.Host(a[2])
	if err != nil {
		return err
	}
	to, err := parseAddr(a[4])
	if err != nil {
		return err
	}
	proto := netlab.Protocol(r.v.Proto)
	if len(a) == 6 {
		proto = netlab.Protocol(a[5])
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{cancel: cancel}
	r.traffic[a[0]] = t
	t.done.Go(func() {
		for ctx.Err() == nil {
			once, stop := context.WithTimeout(ctx, patience.Of(requestTimeout))
			rep := h.Ask(once, proto, to)
			stop()
			if ctx.Err() == nil {
				t.note(rep)
			}
			_ = sleep(ctx, patience.Pause(time.Millisecond))
		}
	})
	return nil
}

func (t *traffic) note(rep netlab.Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rep.Outcome == netlab.Answered {
		t.answered++
		return
	}
	t.lost = append(t.lost, fmt.Sprintf("after %d answers: %s (%v)", t.answered, rep.Outcome, rep.Err))
}

func (t *traffic) stop() {
	t.cancel()
	t.done.Wait()
}

// trafficExpectation requires a number of answers and no loss since the traffic began.
type trafficExpectation struct {
	text, name string
	atLeast    int
}

func (e *trafficExpectation) String() string { return e.text }

func (e *trafficExpectation) check(_ context.Context, r *run) error {
	t, ok := r.traffic[e.name]
	if !ok {
		return permanent{fmt.Errorf("no traffic %q is running", e.name)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lost) > 0 {
		return permanent{fmt.Errorf("lost %d requests; %s", len(t.lost), t.lost[0])}
	}
	if t.answered < e.atLeast {
		return unfinished{fmt.Errorf("only %d requests so far", t.answered)}
	}
	return nil
}
