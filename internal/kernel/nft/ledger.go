package nft

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Ledger keeps account of the rule set's generations: each was made by a commit
// that is ours, or a neighbour's that did nothing in our tables, or was followed by
// a Load. Up to known all are accounted for, so what we believe is there is there.
// A driver has one; the watcher's goroutine and the engine's both write it.
type Ledger struct {
	mu      sync.Mutex
	known   Generation              // 0: never looked
	ahead   map[Generation]struct{} // accounted-for generations beyond a gap that is not explained yet
	bad     Generation              // the last that only a Load can account for; 0: none
	watched bool                    // neighbours' commits are being told
	moved   chan struct{}           // closed at the next change of any of these
}

// maxAhead bounds ahead; to forget them costs a Load at most. It is what 1000
// commits a second make while one lasts.
const maxAhead = 1 << 14

// ledgerPatience is how long the news of a commit may take to arrive, on a node that has
// no processor to spare; the alternative is to read everything again. Microseconds
// are usual.
const ledgerPatience = 250 * time.Millisecond

func (l *Ledger) changed() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// Knows returns the generation up to which all is accounted for, 0 before the first
// look.
func (l *Ledger) Knows() Generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// Compared accounts for everything up to g. The watcher may have come further
// since g was read.
func (l *Ledger) Compared(g Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known != 0 && !g.After(l.known) {
		return
	}
	l.known = g
	for a := range l.ahead {
		if !a.After(g) {
			delete(l.ahead, a)
		}
	}
	l.advance()
}

// Account accounts for the one commit that made g.
func (l *Ledger) Account(g Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accountLocked(g)
}

func (l *Ledger) accountLocked(g Generation) {
	if l.known != 0 && !g.After(l.known) {
		return
	}
	if l.ahead == nil || len(l.ahead) >= maxAhead {
		l.ahead = map[Generation]struct{}{}
	}
	l.ahead[g] = struct{}{}
	l.advance()
}

func (l *Ledger) advance() {
	for l.known != 0 {
		next := l.known.Next()
		if _, there := l.ahead[next]; !there {
			break
		}
		delete(l.ahead, next)
		l.known = next
	}
	l.changed()
}

// Hear takes the watcher's news: a commit that did nothing in our tables is
// accounted for. Others are not, and it reports whether that is still news.
func (l *Ledger) Hear(g Generation, harmless bool) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = true
	if harmless {
		l.accountLocked(g)
		return false
	}
	if !g.After(l.known) {
		return false
	}
	l.bad = g
	l.changed()
	return true
}

// Unwatched ends the news.
func (l *Ledger) Unwatched() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
	l.changed()
}

// Settled waits until everything up to g is accounted for, and reports false when
// that cannot be expected any more.
func (l *Ledger) Settled(ctx context.Context, g Generation) bool {
	return l.wait(ctx, func() bool { return !g.After(l.known) },
		func() bool { return l.bad != 0 && l.bad.After(l.known) && !l.bad.After(g) })
}

// Quiet waits until every commit after from and up to to is accounted for by
// itself, whatever was before.
func (l *Ledger) Quiet(ctx context.Context, from, to Generation) bool {
	accounted := func() bool {
		for g := from; g != to; {
			g = g.Next()
			if _, ahead := l.ahead[g]; !ahead && (l.known == 0 || g.After(l.known)) {
				return false
			}
		}
		return true
	}
	return l.wait(ctx, accounted, func() bool { return l.bad != 0 && l.bad.After(from) && !l.bad.After(to) })
}

// wait waits for a condition of the ledger: bounded, and only while somebody
// might make it true.
func (l *Ledger) wait(ctx context.Context, good, hopeless func() bool) bool {
	deadline := time.NewTimer(ledgerPatience)
	defer deadline.Stop()
	over := false
	for {
		l.mu.Lock()
		if good() {
			l.mu.Unlock()
			return true
		}
		if over || !l.watched || hopeless() {
			l.mu.Unlock()
			return false
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-moved:
		case <-deadline.C:
			over = true
		case <-ctx.Done():
			return false
		}
	}
}

// Tolerate takes the interruption of a dump for nothing if its cause will be known: Load judges that in the end.
func (l *Ledger) Tolerate(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrInterrupted) && l.watched {
		return nil
	}
	return err
}
