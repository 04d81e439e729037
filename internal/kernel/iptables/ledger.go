package iptables

import (
	"bytes"
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
)

// Mark is a point in a Kernel's record of changes. It is meaningful to that Kernel
// only. The zero Mark is before all others.
type Mark uint64

// ledger records which chains of nf_tables were written since a Mark. The Conn reports its
// own writes by name; a nftsave.Listener reports those of other programs while it listens.
// The ledger detects a missed write by the generation, which each commit in the namespace
// increments by one. After a commit that was not reported, the state of every chain is unknown.
type ledger struct {
	mu      sync.Mutex
	now     Mark
	stands  uint32 // the generation after all recorded writes; 0: unknown
	unknown Mark   // writes up to this Mark are unknown
	written map[writtenChain]Mark
}

type writtenChain struct {
	family       Family
	table, chain string
}

// maxWritten bounds the ledger. An overflow is handled as an unreported commit.
const maxWritten = 1 << 16

// at returns the present Mark at a known generation, while no write is in progress.
func (l *ledger) at(generation uint32) Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moment(generation == l.stands, generation)
}

// heardTo returns the present Mark, when the writes of other programs up to a generation,
// or beyond it, have been recorded.
func (l *ledger) heardTo(generation uint32) Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moment(l.stands != 0 && int32(l.stands-generation) >= 0, generation)
}

func (l *ledger) moment(whole bool, generation uint32) Mark {
	if !whole || l.now == 0 {
		l.forget(generation)
	}
	return l.now
}

func (l *ledger) forget(generation uint32) {
	l.now++
	l.unknown, l.stands, l.written = l.now, generation, map[writtenChain]Mark{}
}

// wrote records a Restore that began at one generation and ended at another; 0: the outcome
// is unknown.
func (l *ledger) wrote(r *Restore, before, after uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before != l.stands {
		l.forget(before)
	}
	l.now++
	l.stands = after
	if !eachWritten(r.Input, func(table, chain []byte) { l.note(writtenChain{r.Family, string(table), string(chain)}) }) {
		l.forget(after)
	}
}

// note records a write to a chain at the present Mark. If the ledger is full, it forgets every chain.
func (l *ledger) note(c writtenChain) {
	if l.written[c] = l.now; len(l.written) > maxWritten {
		l.forget(l.stands)
	}
}

// heard records a commit of another program. If the commit does not directly follow the
// last known generation, a commit in between was missed.
func (l *ledger) heard(c nftsave.Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stands == 0 || c.Opaque || c.Generation != nextGeneration(l.stands, 1) {
		l.forget(c.Generation)
		return
	}
	l.now++
	l.stands = c.Generation
	for _, p := range c.Places {
		l.note(writtenChain{Family(p.Family), p.Table, p.Chain})
	}
}

// untouched reports whether a chain is unchanged since a mark.
func (l *ledger) untouched(c writtenChain, since Mark) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return since >= l.unknown && since > 0 && l.written[c] <= since
}

// eachWritten calls f for each chain that the input of iptables-restore may change. It returns
// false for a line that names no chain, and for a table in which no rule or chain is certainly
// added or removed: its COMMIT may change nothing, not even the generation, so that the
// ledger would take another program's commit for this one.
func eachWritten(input []byte, f func(table, chain []byte)) bool {
	var table []byte
	changes := false
	for line := range bytes.Lines(input) {
		line = bytes.TrimRight(line, "\n")
		switch {
		case len(line) == 0 || line[0] == '#':
		case string(line) == "COMMIT":
			if !changes {
				return false
			}
		case line[0] == '*':
			table, changes = line[1:], false
		case line[0] == ':':
			chain, _, _ := bytes.Cut(line[1:], []byte(" "))
			f(table, chain)
		case line[0] == '-':
			_, rest, _ := bytes.Cut(line, []byte(" "))
			chain, _, _ := bytes.Cut(rest, []byte(" "))
			if len(chain) == 0 || chain[0] == '-' {
				return false
			}
			changes = true
			f(table, chain)
		default:
			return false
		}
	}
	return true
}
