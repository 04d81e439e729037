package nftables

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// start is near the end of the numbers, so that the cases go over it.
const start = nft.Generation(1<<32 - 3)

// gen is the n-th generation after start; the kernel leaves out 0.
func gen(n int) nft.Generation {
	g := start
	for range n {
		g = g.Next()
	}
	return g
}

func TestLedger(t *testing.T) {
	ours := func(n int) func(*ledger) { return func(l *ledger) { l.account(gen(n)) } }
	neighbour := func(n int) func(*ledger) { return func(l *ledger) { l.hear(gen(n), true) } }
	touched := func(n int) func(*ledger) { return func(l *ledger) { l.hear(gen(n), false) } }
	loaded := func(n int) func(*ledger) { return func(l *ledger) { l.compared(gen(n)) } }
	for _, c := range []struct {
		name  string
		does  []func(*ledger)
		known int
	}{
		{"one after the other", []func(*ledger){neighbour(1), ours(2), neighbour(3), neighbour(4), ours(5)}, 5},
		{"news before our own answer", []func(*ledger){neighbour(2), neighbour(3), ours(1)}, 3},
		{"a touched generation stops it", []func(*ledger){neighbour(1), touched(2), neighbour(3)}, 1},
		{"a load accounts for it", []func(*ledger){neighbour(1), touched(2), neighbour(3), loaded(2)}, 3},
		{"late news of what a load saw", []func(*ledger){loaded(4), touched(3), neighbour(4), neighbour(5)}, 5},
		{"a load that is behind the news", []func(*ledger){neighbour(1), neighbour(2), loaded(1), neighbour(3)}, 3},
		{"a generation nobody told of", []func(*ledger){neighbour(1), neighbour(3), neighbour(4)}, 1},
	} {
		l := ledger{}
		l.compared(start)
		for _, do := range c.does {
			do(&l)
		}
		if l.known != gen(c.known) {
			t.Errorf("%s: known is %d after the start, want %d", c.name, l.known-start, c.known)
		}
		for g := range l.ahead {
			if !g.After(l.known) {
				t.Errorf("%s: %d is kept though known is %d", c.name, g, l.known)
			}
		}
	}
}

// TestLedgerWaits for news that is under way, not for news that will not come.
func TestLedgerWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		news func(*ledger)
		want bool
		wait time.Duration
	}{
		{"comes", func(l *ledger) { l.hear(gen(1), true); l.hear(gen(2), true) }, true, time.Millisecond},
		{"is bad", func(l *ledger) { l.hear(gen(1), false) }, false, time.Millisecond},
		{"stops", func(l *ledger) { l.unwatched() }, false, time.Millisecond},
		{"never comes", func(*ledger) {}, false, patience},
	} {
		for what, wait := range map[string]func(*ledger) bool{
			"settled": func(l *ledger) bool { return l.settled(context.Background(), gen(2)) },
			"quiet":   func(l *ledger) bool { return l.quiet(context.Background(), start, gen(2)) },
		} {
			synctest.Test(t, func(t *testing.T) {
				l, t0 := &ledger{}, time.Now()
				l.compared(start)
				l.hear(start, true)
				time.AfterFunc(time.Millisecond, func() { c.news(l) })
				if got := wait(l); got != c.want || time.Since(t0) != c.wait {
					t.Errorf("%s, news %s: %v after %v, want %v after %v", what, c.name, got, time.Since(t0), c.want, c.wait)
				}
			})
		}
	}
}

// TestLedgerForgetsWithoutHarm: more than it can keep, and it asks for a Load.
func TestLedgerForgetsWithoutHarm(t *testing.T) {
	l := ledger{}
	l.compared(start)
	for n := 2; n < 3*maxAhead; n++ {
		l.hear(gen(n%8+2)+nft.Generation(n), true)
		if len(l.ahead) > maxAhead {
			t.Fatalf("%d generations kept", len(l.ahead))
		}
	}
	if l.known != start {
		t.Fatalf("known went on to %d over a gap", l.known-start)
	}
}
