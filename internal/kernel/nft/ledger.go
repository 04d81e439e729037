package nft

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Ledger records which generations of the rule set are accounted for, so that a driver can write without reading the kernel
// first. The kernel increments the generation at each commit of any program in the network namespace, whatever table the
// commit changes. A generation is accounted for if its commit
//   - was this driver's (Account),
//   - or was another program's and changed nothing in owned tables (Hear with harmless),
//   - or came before a Load that has read everything (Compared).
//
// known is the last generation up to which all are accounted for. At that generation the cached state of the driver equals
// the actual state of its tables. A batch is sent with known as its Batch.Expect, and the kernel rejects it if the current
// generation is another one (NFNL_BATCH_GENID, ERESTART). So the driver never overwrites a change that it has not seen.
//
// Example: known is 7, and another program commits generation 8. A Commit with Expect 7 is rejected with ErrGeneration, and
// waits in Settled for the notification of 8. Then either
//
//	Hear(8, true)    8 changed nothing in owned tables: known = 8, the retry with Expect 8 commits 9, and Account(9)
//	                 makes known = 9. Nothing was read.
//	Hear(8, false)   8 changed an owned table: bad = 8, Settled returns false, and Commit returns ErrGeneration. Only a
//	                 Load accounts for 8: it reads at generation 8, then Compared(8) makes known = 8.
//
// The results come in any order: if this driver commits 8, another program commits a harmless 9, and the watcher reports 9
// before Commit has received its answer, then 9 waits in ahead, and Account(8) makes known = 9.
//
// Guaranteed: known never passes a generation that is not accounted for. Not guaranteed: that a harmless commit causes no
// Load. Without a watcher no commit of another program can be recognized as harmless. A notification that does not come
// within ledgerPatience, or that was lost, causes a Load too.
//
// A driver has one Ledger. It may share it with another writer that uses the same Kernel, such as the offload; then the
// owned tables are those of both. All methods are safe for concurrent use: the watcher's goroutine calls Hear and Unwatched, the
// goroutines of the engine and of a Survey call the others. The zero value is ready to use: known is 0 until the first
// Compared. docs/design/generation.md has the reasons.
type Ledger struct {
	mu      sync.Mutex
	known   Generation              // 0: no Load yet
	ahead   map[Generation]struct{} // accounted-for generations beyond a gap that is not accounted for yet
	bad     Generation              // the last generation that only a Load can account for; 0: none
	watched bool                    // a watcher reports other programs' commits
	moved   chan struct{}           // closed at the next change of one of these fields
}

// maxAhead bounds ahead; an overflow costs at most one Load. It corresponds to
// 1000 commits a second during one commit of 16 seconds.
const maxAhead = 1 << 14

// ledgerPatience bounds the wait for the notification of a commit, on a node without a
// spare processor; the alternative is a complete resync. Microseconds
// are usual.
const ledgerPatience = 250 * time.Millisecond

// changed wakes the goroutines in wait. l.mu is held.
func (l *Ledger) changed() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// Knows returns the generation up to which all are accounted for; 0 before the first
// Load.
func (l *Ledger) Knows() Generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

// Compared accounts for every generation up to g. The watcher may have advanced beyond g
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

// accountLocked is Account with l.mu held. A generation that is accounted for already is ignored.
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

// advance moves known over the generations in ahead that follow it without a gap. l.mu is held.
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

// Hear handles a notification of the watcher: a harmless commit, one that changed nothing in owned tables,
// is accounted for. Another one is not, and Hear reports whether it is unaccounted for so far.
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

// Unwatched records that the watcher has stopped.
func (l *Ledger) Unwatched() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
	l.changed()
}

// Settled waits until every generation up to g is accounted for. It returns false once
// only a Load can achieve that, at once if there is no watcher, when ctx ends, or after ledgerPatience.
func (l *Ledger) Settled(ctx context.Context, g Generation) bool {
	return l.wait(ctx, func() bool { return !g.After(l.known) },
		func() bool { return l.bad != 0 && l.bad.After(l.known) && !l.bad.After(g) })
}

// Quiet waits until each commit after from and up to to is accounted for
// individually, whatever the state of earlier ones. It returns false as Settled does. A read that began at generation from
// and ended at to is consistent if it returns true. If from equals to it returns true at once.
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

// wait waits for a condition of the ledger, at most ledgerPatience, and only while a watcher
// may still make it true.
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

// Tolerate ignores the interruption of a dump if the watcher will report its cause: Load checks that at its end.
func (l *Ledger) Tolerate(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrInterrupted) && l.watched {
		return nil
	}
	return err
}
