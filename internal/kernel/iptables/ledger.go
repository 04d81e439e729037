package iptables

import (
	"bytes"
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
)

// Mark is a moment in what is known of a Kernel's rules; it means something to that Kernel
// only. The zero Mark is before all of them.
type Mark uint64

// ledger knows of nf_tables which chains were written since a Mark. What we write it is
// told by name, and so what others write while a nftsave.Listener hears them. That nothing
// is missing it sees by the generation, which each commit in the namespace moves by one.
// After a commit of which it was told nothing, it knows nothing of any chain.
type ledger struct {
	mu      sync.Mutex
	now     Mark
	stands  uint32 // the generation after all that is known; 0: not known
	unknown Mark   // what was written until then is not known
	written map[writtenChain]Mark
}

type writtenChain struct {
	family       Family
	table, chain string
}

// maxWritten bounds the ledger. What would not go in is as if somebody else had written.
const maxWritten = 1 << 16

// at returns the present moment, when a generation stands and nothing is being written.
func (l *ledger) at(generation uint32) Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moment(generation == l.stands, generation)
}

// heardTo returns the present moment, when all was told that others have written up to a
// generation, and maybe more.
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

// wrote notes a Restore that began at one generation and ended at another; 0: it is not
// known how it ended.
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

// note notes a chain of the present moment, if there is room.
func (l *ledger) note(c writtenChain) {
	if l.written[c] = l.now; len(l.written) > maxWritten {
		l.forget(l.stands)
	}
}

// heard notes a commit of somebody else's. Of one that does not follow on what is known,
// another one is missing.
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

// untouched reports whether nobody has written a chain since a mark.
func (l *ledger) untouched(c writtenChain, since Mark) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return since >= l.unknown && since > 0 && l.written[c] <= since
}

// eachWritten names the chains that the input of iptables-restore is about. It is false
// for a line that does not name one, and for a table in which no rule or chain is added or
// taken away for certain: its COMMIT may change nothing, not even the generation, so that
// somebody else's commit would be taken for it.
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
