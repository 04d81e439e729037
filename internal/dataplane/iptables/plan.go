package iptables

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// plan is what one Apply does in one family.
type plan struct {
	family model.Family
	batch  []dataplane.Op // of both families
	there  *mirror
	writes map[chainRef]*write
	jumps  []jumpOp
	ops    int
	begun  bool // a part of the batch is written
}

// write is the desired state of one chain.
type write struct {
	ref         chainRef
	kind        dataplane.Kind
	body        string // of a chain that is not shared; "": it is deleted
	op          int    // its index in the batch, or -1
	add, remove map[string]int
	lines       []string // of a shared chain, when all is done
	gone        bool
}

// jumpOp adds or removes one rule in a built-in chain; op is its index in the batch.
type jumpOp struct {
	chainRef
	rule string
	add  bool
	op   int
}

func newPlan(f model.Family, there *mirror) *plan {
	return &plan{family: f, there: there, writes: map[chainRef]*write{}}
}

// take adds one operation.
func (p *plan) take(i int, o *dataplane.Op) {
	ref, rule := chainOf(o.Key)
	p.ops++
	switch o.Key.Kind {
	case kindJump:
		rule, _, _ = strings.Cut(rule, sep)
		p.jumps = append(p.jumps, jumpOp{ref, rule, o.Want != "", i})
	case kindLine:
		w := p.shared(ref)
		if o.Want != "" {
			w.add[rule] = i
		} else {
			w.remove[rule] = i
		}
	case kindBucket:
		w := p.shared(ref)
		if w.op = i; o.Want != "" {
			w.kind = kindBucket
		}
	default:
		p.writes[ref] = &write{ref: ref, kind: o.Key.Kind, body: o.Want, op: i, gone: o.Want == ""}
	}
}

func (p *plan) shared(ref chainRef) *write {
	w := p.writes[ref]
	if w == nil {
		w = &write{ref: ref, kind: kindLine, op: -1, add: map[string]int{}, remove: map[string]int{}}
		p.writes[ref] = w
	}
	return w
}

// settle computes the final lines of shared chains, and which of them are deleted.
func (p *plan) settle() {
	leads := map[chainRef]int{} // change of the number of lines that jump to a bucket
	for _, w := range p.writes {
		if w.add == nil {
			continue
		}
		before := p.there.lines(w.ref)
		w.lines = merge(before, w.add, w.remove)
		for n, lines := range [][]string{before, w.lines} {
			for _, l := range lines {
				if to := bucketTarget(w.ref.table, l); to != "" {
					leads[chainRef{p.family, w.ref.table, to}] += 2*n - 1
				}
			}
		}
	}
	for to, n := range leads { // a line may jump to a bucket whose own lines were quarantined
		if n > 0 && p.writes[to] == nil && p.there.chains[to] == nil {
			p.shared(to)
		}
	}
	for _, w := range p.writes {
		root := kindOfChain(w.ref.table, w.ref.chain) == kindBucket
		if w.add != nil && !root && len(w.lines) == 0 {
			w.gone = p.there.refs[w.ref]+leads[w.ref] <= 0
		}
	}
}

// of returns the writes of a table in an order in which each chain comes after
// those that it jumps to.
func (p *plan) of(t table) []*write {
	var out []*write
	for _, w := range p.writes {
		if w.ref.table == t {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *write) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(b.depth(), a.depth()), cmp.Compare(a.ref.chain, b.ref.chain))
	})
	return out
}

// order: shared chains of both kinds go by depth only.
func (w *write) order() dataplane.Kind {
	if w.kind == kindBucket {
		return kindLine
	}
	return w.kind
}

// depth of a bucket in its trie, by its name; roots are 0.
func (w *write) depth() int {
	name := w.ref.chain
	if kindOfChain(w.ref.table, name) != kindLine {
		return 0
	}
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return 0
	}
	for _, p := range [...]string{"-tcp-", "-udp-", "-sctp-"} {
		if strings.Contains(name, p) {
			return 1024 - n // of ports the smaller block is the deeper
		}
	}
	return n
}

// moves reports whether a table's shared lines grow, shrink, or both.
func (p *plan) moves(t table) (grows, shrinks bool) {
	for _, w := range p.writes {
		if w.ref.table == t {
			grows = grows || len(w.add) > 0
			shrinks = shrinks || len(w.remove) > 0 || w.gone
		}
	}
	return grows, shrinks
}

// record updates the mirror with what was written.
func (p *plan) record() {
	p.there.writes++
	for ref, w := range p.writes {
		switch {
		case w.gone:
			p.there.drop(ref)
		case w.add != nil:
			p.there.set(ref, w.lines, sumOf(w.lines), len(w.lines))
		default:
			sum, n := sumOfBody(w.body)
			p.there.set(ref, nil, sum, n)
		}
	}
}
