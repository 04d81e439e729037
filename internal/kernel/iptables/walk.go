package iptables

import (
	"cmp"
	"slices"
)

// walk is one pass over a table.
type walk struct {
	*entries
	ours    func(string) bool
	builtIn []xchain // not begun yet
	open    *xchain  // the current chain; nil before the first
	last    uint32   // offset of the current chain's last entry so far
}

// findChains walks over the table and computes the digests of the owned chains. It
// returns false for a table with an unexpected layout.
func (e *entries) findChains(head *tableHead, ours func(string) bool) bool {
	e.chains = make([]xchain, 0, len(e.known)+64)
	e.numbers = make([]uint32, len(e.rules)/smallestEntry+1)
	w := walk{entries: e, ours: ours, builtIn: builtIns(head)}
	for at := uint32(0); ; {
		n, ok := e.at(at)
		if !ok {
			return false
		}
		next := at + uint32(len(n.bytes))
		if len(w.builtIn) > 0 && w.builtIn[0].at == at {
			if !w.begin(w.builtIn[0]) {
				return false
			}
			w.builtIn = w.builtIn[1:]
		}
		switch {
		case n.beginsChain() && int(next) == len(e.rules): // the end of the table
			return len(w.builtIn) == 0 && w.open != nil && w.end() && e.sumUp()
		case n.beginsChain():
			if !w.beginNamed(field(n.bytes[n.target+extensionHead:]), next) {
				return false
			}
		default:
			w.last = at
			if w.open != nil && w.open.ours {
				e.add(w.open, &n, next)
			}
		}
		at = next
	}
}

// beginNamed opens a user-defined chain.
func (w *walk) beginNamed(name []byte, at uint32) bool {
	c := w.named(name)
	c.at, c.ours = at, w.ours(c.name)
	return (c.clean || !c.ours) && w.begin(c)
}

// begin closes the current chain and opens the next. Its element in chains does not move before that one is closed.
func (w *walk) begin(c xchain) bool {
	if w.open != nil && !w.end() {
		return false
	}
	w.chains = append(w.chains, c)
	if slot := c.at / smallestEntry; int(slot) < len(w.numbers) {
		w.numbers[slot] = uint32(len(w.chains))
	}
	w.open, w.last = &w.chains[len(w.chains)-1], 0
	return true
}

// end closes the chain, whose last entry is its policy.
func (w *walk) end() bool {
	w.open.end = w.last
	return w.last >= w.open.at
}

// named returns the xchain of a user-defined chain.
func (e *entries) named(name []byte) xchain {
	if known, ok := e.known[string(name)]; ok {
		return xchain{name: known.name, before: known.digest, clean: true}
	}
	c := xchain{name: string(name), clean: len(name) > 0}
	for _, b := range name {
		c.clean = c.clean && b > ' '
	}
	return c
}

// builtIns returns the chains of the hooks, ordered by offset.
func builtIns(head *tableHead) []xchain {
	var out []xchain
	for hook, name := range hookNames {
		if head.hooks>>hook&1 == 1 {
			out = append(out, xchain{name: name, at: head.begins[hook], builtIn: true, clean: true})
		}
	}
	slices.SortFunc(out, func(a, b xchain) int { return cmp.Compare(a.at, b.at) })
	return out
}

// smallestEntry is less than the size in bytes of every entry, so that no two chains begin
// within one block of that size.
const smallestEntry = 128

// chainAt returns the chain whose first entry is at an offset; nil if there is none.
func (e *entries) chainAt(at uint32) *xchain {
	slot := int(at / smallestEntry)
	if slot >= len(e.numbers) || e.numbers[slot] == 0 {
		return nil
	}
	if c := &e.chains[e.numbers[slot]-1]; c.at == at {
		return c
	}
	return nil
}
