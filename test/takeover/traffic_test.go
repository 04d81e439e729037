package takeover_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

var (
	clusterIP = netip.MustParseAddrPort("10.96.0.10:80")
	nodePort  = netip.MustParseAddrPort("172.18.0.2:30080")
)

// patience bounds a request. It is long, so that a busy machine loses none; a datagram is not sent again, so that a gap does.
const patience = 20 * time.Second

// traffic is what runs while rules are taken over: a TCP stream, a UDP flow from one port, and 200 requests a second, each a flow of its
// own, half of them TCP and half UDP, to a ClusterIP and a NodePort.
type traffic struct {
	client *netlab.Host
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	answered map[string]int
	lost     []string
}

func startTraffic(t *testing.T, client *netlab.Host) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	tr := &traffic{client: client, stop: stop, answered: map[string]int{}}
	for name, proto := range map[string]netlab.Protocol{"stream": netlab.TCP, "UDP flow": netlab.UDP} {
		flow, err := client.Open(ctx, proto, clusterIP)
		if err != nil {
			t.Fatal(err)
		}
		tr.done.Go(func() {
			defer flow.Close()
			for ctx.Err() == nil {
				tr.note(ctx, name, flow.Ask)
				pause(ctx, 10*time.Millisecond)
			}
		})
	}
	tr.done.Go(func() { tr.requests(ctx) })
	t.Cleanup(func() { tr.stop(); tr.done.Wait() })
	return tr
}

// requests begins one each 5 ms, however long the others take.
func (tr *traffic) requests(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		proto := []netlab.Protocol{netlab.TCP, netlab.UDP}[i%2]
		to := []netip.AddrPort{clusterIP, nodePort}[i/2%2]
		all.Go(func() {
			tr.note(ctx, fmt.Sprintf("%s request to %s", proto, to), func(ctx context.Context) netlab.Reply { return tr.client.Ask(ctx, proto, to) })
		})
	}
}

// note makes one request, which is not cut short when the traffic ends, and counts it.
func (tr *traffic) note(ctx context.Context, name string, ask func(context.Context) netlab.Reply) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	reply := ask(limited)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if reply.Outcome == netlab.Answered {
		tr.answered[name]++
		return
	}
	tr.lost = append(tr.lost, fmt.Sprintf("%s: %s (%v)", name, reply, reply.Err))
}

// more waits until every kind of traffic was answered n times more.
func (tr *traffic) more(t *testing.T, n int) {
	t.Helper()
	before := tr.counts()
	eventually(t, fmt.Sprintf("%d more of each kind of traffic", n), func() error {
		now := tr.counts()
		if len(now) < 6 {
			return fmt.Errorf("only %v", now)
		}
		for name, count := range now {
			if count < before[name]+n {
				return fmt.Errorf("%s: %d", name, count-before[name])
			}
		}
		return nil
	})
}

func (tr *traffic) counts() map[string]int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	out := map[string]int{}
	for name, n := range tr.answered {
		out[name] = n
	}
	return out
}

// check says what was lost since the last check.
func (tr *traffic) check(t *testing.T, when string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.lost) > 0 {
		t.Errorf("%s: %d lost, the first: %s", when, len(tr.lost), tr.lost[0])
	}
	tr.lost = nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// eventually waits until f succeeds, a minute at most.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
