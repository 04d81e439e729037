package iptables

import (
	"bytes"
	"sync"
)

// Mark is a moment in what is known of a Kernel's rules; it means something to that Kernel
// only. The zero Mark is before all of them.
type Mark uint64

// ledger knows of nf_tables which chains were written since a Mark. What we write it is
// told by name, and that nobody else wrote it sees by the generation, which each commit in
// the namespace moves by one. After a commit of somebody else's, whatever it was about, it
// knows nothing of any chain.
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

// at gives the present moment, when a generation stands and nothing is being written.
func (l *ledger) at(generation uint32) Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	if generation != l.stands || l.now == 0 || len(l.written) > maxWritten {
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
	if !eachWritten(r.Input, func(table, chain []byte) {
		l.written[writtenChain{r.Family, string(table), string(chain)}] = l.now
	}) {
		l.forget(after)
	}
}

// untouched tells whether nobody has written a chain since a mark.
func (l *ledger) untouched(c writtenChain, since Mark) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return since >= l.unknown && since > 0 && l.written[c] <= since
}

// eachWritten names the chains that the input of iptables-restore is about. It is false
// for a line that does not name one.
func eachWritten(input []byte, f func(table, chain []byte)) bool {
	var table []byte
	for line := range bytes.Lines(input) {
		line = bytes.TrimRight(line, "\n")
		switch {
		case len(line) == 0 || line[0] == '#' || string(line) == "COMMIT":
		case line[0] == '*':
			table = line[1:]
		case line[0] == ':':
			chain, _, _ := bytes.Cut(line[1:], []byte(" "))
			f(table, chain)
		case line[0] == '-':
			_, rest, _ := bytes.Cut(line, []byte(" "))
			chain, _, _ := bytes.Cut(rest, []byte(" "))
			if len(chain) == 0 || chain[0] == '-' {
				return false
			}
			f(table, chain)
		default:
			return false
		}
	}
	return true
}
