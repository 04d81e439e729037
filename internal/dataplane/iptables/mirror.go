package iptables

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// mirror is the cached state of the owned chains, as last written or loaded: of each
// chain a digest, and of shared chains also the lines, because iptables-restore
// takes whole chains and a shared chain's lines come from many Services.
type mirror struct {
	chains map[chainRef]*chain
	refs   map[chainRef]int // the number of lines that jump to a bucket
	writes uint64           // counts successful writes
	rules  map[familyTable]int
}

// familyTable is one table of one family.
type familyTable struct {
	family byte // model.Family
	table  table
}

// chain is one chain. Lines are in the order of the kernel.
type chain struct {
	lines []string // of shared chains only
	sum   uint64   // digest of the rules in their order
	rules int
	wrote uint64 // mirror.writes when it was last written
}

func newMirror() mirror {
	return mirror{chains: map[chainRef]*chain{}, refs: map[chainRef]int{}, rules: map[familyTable]int{}}
}

func (c chainRef) ft() familyTable { return familyTable{byte(c.family), c.table} }

// set updates the state of a chain; lines is nil for a chain that is not shared.
func (m *mirror) set(ref chainRef, lines []string, sum uint64, rules int) {
	m.drop(ref)
	m.chains[ref] = &chain{lines: lines, sum: sum, rules: rules, wrote: m.writes}
	m.rules[ref.ft()] += rules
	m.count(ref, lines, 1)
}

// drop records that a chain was deleted.
func (m *mirror) drop(ref chainRef) {
	old := m.chains[ref]
	if old == nil {
		return
	}
	m.rules[ref.ft()] -= old.rules
	m.count(ref, old.lines, -1)
	delete(m.chains, ref)
}

func (m *mirror) count(from chainRef, lines []string, n int) {
	for _, l := range lines {
		if to := bucketTarget(from.table, l); to != "" {
			at := chainRef{from.family, from.table, to}
			if m.refs[at] += n; m.refs[at] == 0 {
				delete(m.refs, at)
			}
		}
	}
}

// lines returns the lines of a shared chain.
func (m *mirror) lines(ref chainRef) []string {
	if c := m.chains[ref]; c != nil {
		return c.lines
	}
	return nil
}

// bucketTarget returns the bucket that a line jumps to; "" if it jumps to another chain.
func bucketTarget(t table, line string) string {
	i := strings.LastIndexByte(line, ' ')
	if i < 3 || line[i-3] != ' ' || line[i-2] != '-' || line[i-1] != 'g' && line[i-1] != 'j' {
		return ""
	}
	if to := line[i+1:]; kindOfChain(t, to) == kindLine {
		return to
	}
	return ""
}

// lineLess is the order of lines in a shared chain.
func lineLess(a, b string) int {
	if ra, rb := lineRank(a), lineRank(b); ra != rb {
		return ra - rb
	}
	return strings.Compare(a, b)
}

// lineRank: a single port goes before a range that holds it, both before whatever
// else goes to the address; of each, tests of the source go before the line for
// all other sources; "whatever it is, on this node" is last.
func lineRank(line string) int {
	switch {
	case strings.HasPrefix(line, "-m "):
		return 9
	case strings.HasSuffix(line, " -g "+rejectChain):
		return 8
	}
	rank := 1
	if strings.HasPrefix(line, "-s ") {
		rank = 0
	}
	if _, ports, ok := strings.Cut(line, " --dport "); ok && strings.Contains(line, "-m comment ") {
		if port, _, _ := strings.Cut(ports, " "); strings.Contains(port, ":") {
			rank += 2
		}
	}
	return rank
}

// merge returns lines with some added and some removed, in order.
func merge(lines []string, add, remove map[string]int) []string {
	out := make([]string, 0, len(lines)+len(add))
	for _, l := range lines {
		_, gone := remove[l]
		_, twice := add[l]
		if !gone && !twice {
			out = append(out, l)
		}
	}
	for l := range add {
		out = append(out, l)
	}
	slices.SortFunc(out, lineLess)
	return out
}

// chainSum sums up a chain's rules in their order, as the value that is made of them (body) and their number.
type chainSum struct {
	value *dataplane.Digester
	rules int
}

func newChainSum() chainSum { return chainSum{value: dataplane.NewDigester()} }

// add takes one rule, without "-A CHAIN ".
func (c *chainSum) add(rule []byte) {
	if c.rules++; c.rules > 1 {
		c.value.Add([]byte{'\n'})
	}
	c.value.Add(rule)
}

func (c *chainSum) reset() {
	c.value.Reset()
	c.rules = 0
}

func (c *chainSum) sum() uint64 { return c.value.Sum64() + uint64(c.rules) }

func sumOf(rules []string) uint64 {
	return dataplane.Sum64(strings.Join(rules, "\n")) + uint64(len(rules))
}

// sumOfBody is sumOf for a chain's value; it also counts the rules.
func sumOfBody(value string) (sum uint64, rules int) {
	if value == emptyBody {
		return sumOf(nil), 0
	}
	rules = strings.Count(value, "\n") + 1
	return dataplane.Sum64(value) + uint64(rules), rules
}
