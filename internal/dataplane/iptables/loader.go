package iptables

import (
	"bytes"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// splitRule splits "-A CHAIN RULE"; ok is false for other lines.
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

// loader reads one table: its lines, chain by chain, and the declarations of chains before,
// among or after them. It reports nothing before the whole table has been read, so that a
// failed read can be discarded and retried.
type loader struct {
	scan
	ref      chainRef // the chain being read
	kind     dataplane.Kind
	sum      chainSum
	rules    []string            // its rules, if their text is required
	head     string              // the prefix of the IDs of a shared chain's lines
	ids      []string            // the IDs of its lines
	found    []*seen             // in the order of reading
	texts    map[string]string   // the values of unshared chains, unless digests suffice
	declared map[string]struct{} // owned chains that exist; those with rules are in found as well
	jumps    map[string]int
	led      map[string]struct{} // the buckets that lines jump to; nil: not computed yet
	mark     iptables.Mark       // when the read began; zero: nothing of it is cached
	last     remembered          // the cached read that recalled chains come from
	recalled int                 // the number of chains taken from last
}

// seen is what one read found of an owned chain that has rules. It is immutable.
type seen struct {
	id     string // of an unshared chain, or of a shared one as a whole
	kind   dataplane.Kind
	digest string   // of the value of an unshared chain
	ids    []string // of the lines of a shared chain
	tidy   bool     // the lines were in the desired order, without duplicates
	sum    uint64
	rules  int
}

func (s *seen) chain() string { return s.id[1:] }

// lines returns the lines of a shared chain.
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

// foreign handles a rule in a chain that is not owned: it counts owned jumps.
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

// ourJump reports whether a rule in a chain that is not owned is an owned jump: it is in a
// built-in chain, jumps to an owned chain and has a comment that the agent or any
// kube-proxy writes. Any other rule that jumps to an owned chain belongs to another program.
func ourJump(t table, chain, rule string) bool {
	i := strings.LastIndex(rule, " -j ")
	if i < 0 || !builtIn(chain) || !leadsIn(t, rule[i+4:]) {
		return false
	}
	return strings.Contains(rule, ` --comment "kubernetes `) || strings.Contains(rule, ` --comment "block incoming localnet connections"`) ||
		strings.Contains(rule, ` --comment "kube-proxy `) // of its ipvs mode
}

// builtIn reports whether a chain is one of the kernel's built-in chains.
func builtIn(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// leadsIn reports whether an owned chain is the target of a jump from a built-in chain.
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

// finish completes the chain that was being read and adds it to found.
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

// tidyUp sorts the lines into the desired order and removes duplicates. It records in tidy whether they already were so.
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

// digest returns the digest of the value of an unshared chain that has rules.
func (l *loader) digest() string {
	if l.sum.rules == 1 && l.sum.value.Sum64() == dataplane.Sum64("") { // one empty rule
		return body([]string{""})
	}
	return l.sum.value.Digest()
}
