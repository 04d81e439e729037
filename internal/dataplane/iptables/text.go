package iptables

import (
	"bytes"
	"strings"
)

// script is the input of one iptables-restore. For each line it records the
// operation that caused it.
type script struct {
	bytes.Buffer
	blame   []int // by line number, from 1; -1 = none
	commits int
	written map[table]int // rules
}

func newScript() *script { return &script{blame: []int{-1}, written: map[table]int{}} }

func (s *script) line(op int, parts ...string) {
	for _, p := range parts {
		s.WriteString(p)
	}
	s.WriteByte('\n')
	s.blame = append(s.blame, op)
}

// section writes some chains of one table, and the changes of its built-in
// chains, in one transaction. With keep nothing is deleted yet: lines to be deleted
// stay next to the new ones.
func (s *script) section(t table, list []*write, jumps []jumpOp, keep bool) {
	if len(list)+len(jumps) == 0 {
		return
	}
	s.line(-1, "*", t.String())
	for _, w := range list {
		if !keep || !w.gone {
			s.line(w.op, ":", w.ref.chain, " - [0:0]") // creates it, or flushes it
		}
	}
	for _, j := range jumps {
		if !j.add {
			s.line(j.op, "-D ", j.chain, " ", j.rule)
		}
	}
	for _, w := range list {
		s.rules(w, keep)
	}
	for _, j := range jumps {
		if j.add {
			s.line(j.op, "-I ", j.chain, " ", j.rule)
		}
	}
	for _, w := range list {
		if w.gone && !keep {
			s.line(w.op, "-X ", w.ref.chain)
		}
	}
	s.line(-1, "COMMIT")
	s.commits++
}

// rules writes the rules of a chain.
func (s *script) rules(w *write, keep bool) {
	switch {
	case w.gone:
	case w.add == nil:
		s.body(w)
	case keep:
		s.lines(w, merge(w.lines, w.remove, nil))
	default:
		s.lines(w, w.lines)
	}
}

func (s *script) body(w *write) {
	if w.body == emptyBody {
		return
	}
	for rule := range strings.SplitSeq(w.body, "\n") {
		s.line(w.op, "-A ", w.ref.chain, " ", rule)
		s.written[w.ref.table]++
	}
}

func (s *script) lines(w *write, lines []string) {
	for _, l := range lines {
		op, known := w.add[l]
		if !known {
			op = -1
		}
		s.line(op, "-A ", w.ref.chain, " ", l)
		s.written[w.ref.table]++
	}
}
