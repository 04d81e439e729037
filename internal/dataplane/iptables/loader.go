package iptables

import (
	"bytes"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// rule splits "-A CHAIN RULE"; ok is false for other lines.
func splitRule(line []byte) (chain, rule []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("-A "))
	if !ok {
		return nil, nil, false
	}
	chain, rule, _ = bytes.Cut(rest, []byte(" "))
	return chain, rule, true
}

// declared returns the chain of ":CHAIN - [0:0]".
func declared(line []byte) (chain []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(":"))
	if !ok {
		return nil, false
	}
	chain, _, _ = bytes.Cut(rest, []byte(" "))
	return chain, true
}

// loader reads one table: its lines chain by chain, and what chains there are before, among
// or behind them. It tells of nothing before the table was read to its end, so that one
// reading that failed can be forgotten for another.
type loader struct {
	scan
	ref      chainRef // the chain being read
	kind     dataplane.Kind
	sum      chainSum
	rules    []string            // its rules, where their text is wanted
	head     string              // begins the IDs of a shared chain's lines
	ids      []string            // of its lines
	found    []*seen             // in the order in which they were read
	texts    map[string]string   // the values of chains of their own, unless digests will do
	declared map[string]struct{} // chains of ours that are there; of those with rules more is found
	jumps    map[string]int
	led      map[string]struct{} // the buckets that lines lead to; nil: nobody has asked
	mark     iptables.Mark       // when it began; zero: nothing of it need be remembered
	last     remembered          // what was taken from memory is of this
	recalled int                 // chains that were taken from there
}

// seen is what one reading found of a chain of ours that has rules. It does not change.
type seen struct {
	id     string // of a chain of its own, or of a shared one as a whole
	kind   dataplane.Kind
	digest string   // of the value of a chain of its own
	ids    []string // of the lines of a shared one
	tidy   bool     // they stood in their order, each once
	sum    uint64
	rules  int
}

func (s *seen) chain() string { return s.id[1:] }

// lines are those of a shared chain.
func (s *seen) lines() []string {
	lines := make([]string, len(s.ids))
	for i, id := range s.ids {
		lines[i] = id[len(s.id)+len(sep):]
	}
	return lines
}

func newLoader(r scan, f model.Family, t table) *loader {
	return &loader{scan: r, ref: chainRef{family: f, table: t}, sum: newChainSum(), texts: map[string]string{}, declared: map[string]struct{}{}, jumps: map[string]int{}}
}

func (l *loader) read(line []byte) error {
	if name, ok := declared(line); ok {
		if kindOfChain(l.ref.table, string(name)) != 0 {
			l.declared[string(name)] = struct{}{}
		}
		return nil
	}
	chain, rule, ok := splitRule(line)
	if !ok {
		return nil
	}
	if string(chain) != l.ref.chain {
		l.finish()
		l.ref.chain = string(chain)
		l.kind = kindOfChain(l.ref.table, l.ref.chain)
		if l.isShared() {
			l.head = l.ref.line("")
		}
	}
	if l.kind == 0 {
		l.foreign(rule)
		return nil
	}
	l.sum.add(rule)
	switch {
	case l.isShared():
		l.ids = append(l.ids, l.head+string(rule))
	case !l.digests:
		l.rules = append(l.rules, string(rule))
	}
	return nil
}

// isShared reports whether the lines of the chain being read are objects of their own.
func (l *loader) isShared() bool { return l.kind == kindLine || l.kind == kindBucket }

// foreign looks at a rule in somebody else's chain.
func (l *loader) foreign(text []byte) {
	if !builtIn(l.ref.chain) {
		return
	}
	rule := string(text)
	if !ourJump(l.ref.table, l.ref.chain, rule) {
		return
	}
	l.jumps[l.ref.line(rule)]++
}

// ourJump reports whether a rule in a chain that is not ours is: it stands in a
// built-in chain, leads to a chain of ours and says so in words that we or any
// kube-proxy use. A rule that somebody wrote to lead to our chains is theirs.
func ourJump(t table, chain, rule string) bool {
	i := strings.LastIndex(rule, " -j ")
	if i < 0 || !builtIn(chain) || !leadsIn(t, rule[i+4:]) {
		return false
	}
	return strings.Contains(rule, ` --comment "kubernetes `) || strings.Contains(rule, ` --comment "block incoming localnet connections"`) ||
		strings.Contains(rule, ` --comment "kube-proxy `) // of its ipvs mode
}

// builtIn reports whether a chain is one of the kernel's.
func builtIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// leadsIn reports whether built-in chains lead to a chain of ours.
func leadsIn(t table, chain string) bool {
	for _, j := range jumps() {
		if j.table == t && strings.HasSuffix(j.rule, " -j "+chain) {
			return true
		}
	}
	return false
}

func (l *loader) put(k dataplane.Kind, id, value string) {
	l.emit(dataplane.Key{Kind: k, Family: l.ref.family, ID: id}, value)
}

// finish ends the chain that was being read.
func (l *loader) finish() {
	if l.ref.chain == "" || l.kind == 0 {
		return
	}
	one := &seen{id: l.ref.id(), kind: l.kind, sum: l.sum.sum(), rules: l.sum.rules}
	if l.isShared() {
		one.ids = slices.Clone(l.ids)
		one.tidyUp(l.head)
	} else {
		one.digest = l.digest()
		if !l.digests {
			l.texts[l.ref.chain] = body(l.rules)
		}
	}
	l.found = append(l.found, one)
	l.rules, l.ids = l.rules[:0], l.ids[:0]
	l.sum.reset()
}

// tidyUp returns lines the order in which they should be, each once, and notes whether they had it.
func (s *seen) tidyUp(head string) {
	lines := s.lines()
	if s.tidy = inOrder(lines); s.tidy {
		return
	}
	slices.SortFunc(lines, lineLess)
	s.ids = s.ids[:0]
	for _, line := range slices.Compact(lines) {
		s.ids = append(s.ids, head+line)
	}
}

// digest is that of the value of a chain of its own, which has rules.
func (l *loader) digest() string {
	if l.sum.rules == 1 && l.sum.value.Sum64() == dataplane.Sum64("") { // one rule without a word
		return body([]string{""})
	}
	return l.sum.value.Digest()
}
