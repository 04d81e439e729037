package nft

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// firstGen is near the end of the numbers, so that the cases go over it.
const firstGen = Generation(1<<32 - 3)

// nthGen is the n-th generation after firstGen; the kernel leaves out 0.
func nthGen(n int) Generation {
	g := firstGen
	for range n {
		g = g.Next()
	}
	return g
}

func TestLedger(t *testing.T) {
	ours := func(n int) func(*Ledger) { return func(l *Ledger) { l.Account(nthGen(n)) } }
	neighbour := func(n int) func(*Ledger) { return func(l *Ledger) { l.Hear(nthGen(n), true) } }
	touched := func(n int) func(*Ledger) { return func(l *Ledger) { l.Hear(nthGen(n), false) } }
	loaded := func(n int) func(*Ledger) { return func(l *Ledger) { l.Compared(nthGen(n)) } }
	for _, c := range []struct {
		name  string
		does  []func(*Ledger)
		known int
	}{
		{"one after the other", []func(*Ledger){neighbour(1), ours(2), neighbour(3), neighbour(4), ours(5)}, 5},
		{"news before our own answer", []func(*Ledger){neighbour(2), neighbour(3), ours(1)}, 3},
		{"a touched generation stops it", []func(*Ledger){neighbour(1), touched(2), neighbour(3)}, 1},
		{"a load accounts for it", []func(*Ledger){neighbour(1), touched(2), neighbour(3), loaded(2)}, 3},
		{"late news of what a load saw", []func(*Ledger){loaded(4), touched(3), neighbour(4), neighbour(5)}, 5},
		{"a load that is behind the news", []func(*Ledger){neighbour(1), neighbour(2), loaded(1), neighbour(3)}, 3},
		{"a generation nobody told of", []func(*Ledger){neighbour(1), neighbour(3), neighbour(4)}, 1},
	} {
		l := Ledger{}
		l.Compared(firstGen)
		for _, do := range c.does {
			do(&l)
		}
		if l.known != nthGen(c.known) {
			t.Errorf("%s: known is %d after the start, want %d", c.name, l.known-firstGen, c.known)
		}
		for g := range l.ahead {
			if !g.After(l.known) {
				t.Errorf("%s: %d is kept though known is %d", c.name, g, l.known)
			}
		}
	}
}

// TestLedgerWaits for a notification that is pending, not for one that will not arrive.
func TestLedgerWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		news func(*Ledger)
		want bool
		wait time.Duration
	}{
		{"comes", func(l *Ledger) { l.Hear(nthGen(1), true); l.Hear(nthGen(2), true) }, true, time.Millisecond},
		{"is bad", func(l *Ledger) { l.Hear(nthGen(1), false) }, false, time.Millisecond},
		{"stops", func(l *Ledger) { l.Unwatched() }, false, time.Millisecond},
		{"never comes", func(*Ledger) {}, false, ledgerPatience},
	} {
		for what, wait := range map[string]func(*Ledger) bool{
			"settled": func(l *Ledger) bool { return l.Settled(context.Background(), nthGen(2)) },
			"quiet":   func(l *Ledger) bool { return l.Quiet(context.Background(), firstGen, nthGen(2)) },
		} {
			synctest.Test(t, func(t *testing.T) {
				l, t0 := &Ledger{}, time.Now()
				l.Compared(firstGen)
				l.Hear(firstGen, true)
				time.AfterFunc(time.Millisecond, func() { c.news(l) })
				if got := wait(l); got != c.want || time.Since(t0) != c.wait {
					t.Errorf("%s, news %s: %v after %v, want %v after %v", what, c.name, got, time.Since(t0), c.want, c.wait)
				}
			})
		}
	}
}

// TestLedgerQuietAfterBadNews: a commit that a Load has accounted for does not end a later
// wait.
func TestLedgerQuietAfterBadNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Ledger{}
		l.Compared(firstGen)
		l.Hear(nthGen(1), false)
		l.Compared(nthGen(1))
		time.AfterFunc(time.Millisecond, func() { l.Hear(nthGen(2), true) })
		if !l.Quiet(context.Background(), nthGen(1), nthGen(2)) {
			t.Error("not quiet because of a commit before the wait")
		}
	})
}

// TestLedgerForgetsWithoutHarm: more than it can keep, and it asks for a Load.
func TestLedgerForgetsWithoutHarm(t *testing.T) {
	l := Ledger{}
	l.Compared(firstGen)
	for n := 2; n < 3*maxAhead; n++ {
		l.Hear(nthGen(n%8+2)+Generation(n), true)
		if len(l.ahead) > maxAhead {
			t.Fatalf("%d generations kept", len(l.ahead))
		}
	}
	if l.known != firstGen {
		t.Fatalf("known went on to %d over a gap", l.known-firstGen)
	}
}
