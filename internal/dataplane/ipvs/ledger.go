package ipvs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// ledger keeps account of the rule set's generations: each was made by a commit
// that is ours, or a neighbour's that did nothing in our tables, or was followed by
// a Load. Up to known all are accounted for, so what we believe is there is there.
// The watcher's goroutine and the engine's both write it.
type ledger struct {
	mu      sync.Mutex
	known   nft.Generation              // 0: never looked
	ahead   map[nft.Generation]struct{} // accounted-for generations beyond a gap that is not explained yet
	bad     nft.Generation              // the last that only a Load can account for; 0: none
	watched bool                        // neighbours' commits are being told
	moved   chan struct{}               // closed at the next change of any of these
}

// maxAhead bounds ahead; to forget them costs a Load at most. It is what 1000
// commits a second make while one lasts.
const maxAhead = 1 << 14

// patience is how long the news of a commit may take to arrive, on a node that has
// no processor to spare; the alternative is to read everything again. Microseconds
// are usual.
const patience = 250 * time.Millisecond

func (l *ledger) changed() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// knows gives the generation up to which all is accounted for, 0 before the first
// look.
func (l *ledger) knows() nft.Generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// compared accounts for everything up to g. The watcher may have come further
// since g was read.
func (l *ledger) compared(g nft.Generation) {
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

// account accounts for the one commit that made g.
func (l *ledger) account(g nft.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accountLocked(g)
}

func (l *ledger) accountLocked(g nft.Generation) {
	if l.known != 0 && !g.After(l.known) {
		return
	}
	if l.ahead == nil || len(l.ahead) >= maxAhead {
		l.ahead = map[nft.Generation]struct{}{}
	}
	l.ahead[g] = struct{}{}
	l.advance()
}

func (l *ledger) advance() {
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

// hear takes the watcher's news: a commit that did nothing in our tables is
// accounted for. Others are not, and it reports whether that is still news.
func (l *ledger) hear(g nft.Generation, harmless bool) (news bool) {
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

// unwatched ends the news.
func (l *ledger) unwatched() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
	l.changed()
}

// settled waits until everything up to g is accounted for, and reports false when
// that cannot be expected any more.
func (l *ledger) settled(ctx context.Context, g nft.Generation) bool {
	return l.wait(ctx, func() bool { return !g.After(l.known) },
		func() bool { return l.bad != 0 && l.bad.After(l.known) && !l.bad.After(g) })
}

// quiet waits until every commit after from and up to to is accounted for by
// itself, whatever was before.
func (l *ledger) quiet(ctx context.Context, from, to nft.Generation) bool {
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
func (l *ledger) wait(ctx context.Context, good, hopeless func() bool) bool {
	deadline := time.NewTimer(patience)
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

// tolerate takes the interruption of a dump for nothing if its cause will be known: Load judges that in the end.
func (l *ledger) tolerate(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, nft.ErrInterrupted) && l.watched {
		return nil
	}
	return err
}
