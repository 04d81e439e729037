package iptables

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"
)

var testSeed = maphash.MakeSeed() // one, so that digests of two tables may be compared

func oursByName(name string) bool { return strings.HasPrefix(name, "KUBE-") }

// told returns the lines and the digest of each owned chain, or false if a table cannot be
// read. It does not modify the rules.
func told(f Family, head *tableHead, rules []byte) (lines map[string][]string, sums map[string]uint64, ok bool) {
	e := entries{layout: layoutOf(f), rules: slices.Clone(rules), seed: testSeed}
	if !e.findChains(head, oursByName) {
		return nil, nil, false
	}
	lines, sums = map[string][]string{}, map[string]uint64{}
	for i := range e.chains {
		c := &e.chains[i]
		if !c.ours {
			continue
		}
		list := []string{""}
		if _, err := e.printChain([]byte("-A "+c.name), c, func(line []byte) error {
			list = append(list, string(line))
			return nil
		}); err != nil {
			return nil, nil, false
		}
		lines[c.name], sums[c.name] = list, c.digest
	}
	return lines, sums, true
}

// match is one with a name, a revision and what is behind.
func match(name string, revision byte, info ...byte) []byte {
	m := make([]byte, extensionHead, extensionHead+len(info))
	copy(m[extensionName:], name)
	m[extensionRevision] = revision
	m = append(m, info...)
	for len(m)%8 != 0 {
		m = append(m, 0)
	}
	binary.NativeEndian.PutUint16(m, uint16(len(m)))
	return m
}

// varied is a table whose owned chains have rules of every shape.
func varied(f Family) (*tableHead, *table) {
	b := &table{layout: layoutOf(f)}
	head := &tableHead{hooks: 1 << 3}
	var jumps []uint32
	places := map[string]int32{}
	chain := func(name string) {
		b.chain(name)
		places[name] = int32(len(b.rules))
	}
	b.verdict(-2)
	chain("KUBE-A")
	jumps = append(jumps, b.verdict(0, match("udp", 0, 1, 0, 2, 0, 3, 0, 4, 0, 0, 0)...))
	jumps = append(jumps, b.verdict(0))
	b.verdict(-1, match("mark", 1, 5, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0)...)
	onward := b.verdict(0, comment("goes on")...)
	b.set(onward, int32(len(b.rules)))
	b.verdict(policy)
	chain("KUBE-B")
	marks := b.add("MARK", []byte{0, 64, 0, 0, 0, 64, 0, 0}, match("statistic", 0, append([]byte{0, 0, 0, 0, 0, 0, 0, 64}, make([]byte, 16)...)...))
	n, _ := (&entries{layout: b.layout, rules: b.rules}).at(marks)
	n.bytes[n.target+extensionRevision] = 2
	b.verdict(-5)
	b.verdict(policy)
	chain("KUBE-C")
	jumps = append(jumps, b.verdict(0))
	b.verdict(policy)
	chain("KUBE-D") // as long as the one before, which may be taken for it
	jumps = append(jumps, b.verdict(0))
	b.verdict(policy)
	chain("OTHER")
	b.verdict(policy)
	b.chain("ERROR")
	for i, to := range []string{"KUBE-B", "KUBE-C", "OTHER", "KUBE-B"} {
		b.set(jumps[i], places[to])
	}
	b.rules[int(jumps[1])+b.layout.flags] = b.layout.goTo
	copy(b.rules[int(jumps[3])+b.layout.interfaces:], "eth0")
	copy(b.rules[int(jumps[3])+b.layout.interfaces+32:], "\xff\xff\xff\xff\xff")
	return head, b
}

// set changes the verdict of an entry.
func (b *table) set(at uint32, verdict int32) {
	n, _ := (&entries{layout: b.layout, rules: b.rules}).at(at)
	binary.NativeEndian.PutUint32(n.bytes[n.target+extensionHead:], uint32(verdict))
}

// TestDigestSeesEveryBit: whatever bits of a table are others, no chain has the digest that
// it had unless its lines are what they were.
func TestDigestSeesEveryBit(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		head, b := varied(f)
		lines, sums, ok := told(f, head, b.rules)
		if !ok || len(lines) != 4 {
			t.Fatalf("family %d: %q", f, lines)
		}
		seen, differ := 0, 0
		for bit := range len(b.rules) * 8 {
			b.rules[bit/8] ^= 1 << (bit % 8)
			now, nowSums, ok := told(f, head, b.rules)
			b.rules[bit/8] ^= 1 << (bit % 8)
			if !ok {
				continue
			}
			seen++
			for name, list := range now {
				if slices.Equal(list, lines[name]) {
					continue
				}
				differ++
				if nowSums[name] == sums[name] {
					t.Errorf("family %d, bit %d: chain %s is %q, was %q, and has the same digest", f, bit, name, list, lines[name])
				}
			}
		}
		if seen < 1000 || differ < 500 {
			t.Errorf("family %d: %d tables were read, in which %d chains were others", f, seen, differ)
		}
	}
}

// TestDigestOfSwappedRules: entries of one size may change places, in a chain or between two.
func TestDigestOfSwappedRules(t *testing.T) {
	head, b := varied(IPv4)
	lines, sums, _ := told(IPv4, head, b.rules)
	type place struct{ at, size int }
	var places []place
	e := entries{layout: b.layout, rules: b.rules}
	for at := 0; at < len(b.rules); {
		n, _ := e.at(uint32(at))
		places = append(places, place{at, len(n.bytes)})
		at += len(n.bytes)
	}
	swapped := 0
	for i, p := range places {
		for _, q := range places[i+1:] {
			if p.size != q.size {
				continue
			}
			rules := slices.Clone(b.rules)
			copy(rules[p.at:], b.rules[q.at:][:q.size])
			copy(rules[q.at:], b.rules[p.at:][:p.size])
			now, nowSums, ok := told(IPv4, head, rules)
			if !ok {
				continue
			}
			for name, list := range now {
				if !slices.Equal(list, lines[name]) {
					swapped++
					if nowSums[name] == sums[name] {
						t.Errorf("entries at %d and %d: chain %s is %q, was %q, and has the same digest", p.at, q.at, name, list, lines[name])
					}
				}
			}
		}
	}
	if swapped < 10 {
		t.Errorf("only %d chains were others", swapped)
	}
}

// TestDigestIsOfTheRules: what the kernel counts, and where chains stand, is not of the rules.
func TestDigestIsOfTheRules(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		head, b := varied(f)
		_, sums, _ := told(f, head, b.rules)
		e := entries{layout: b.layout, rules: b.rules}
		for at := uint32(0); int(at) < len(b.rules); {
			n, _ := e.at(at)
			l := &b.layout
			for _, part := range [][]byte{n.bytes[l.offsets-4 : l.offsets], n.bytes[l.offsets+4 : l.offsets+8], n.bytes[l.size-countersSize : l.size]} {
				for i := range part {
					part[i] ^= byte(at) | 0x55
				}
			}
			at += uint32(len(n.bytes))
		}
		if _, now, ok := told(f, head, b.rules); !ok || !maps.Equal(now, sums) {
			t.Errorf("family %d, counted: %v, were %v", f, now, sums)
		}
		moved := &table{layout: b.layout}
		moved.verdict(-1)
		by := int32(len(moved.rules))
		for at := uint32(0); int(at) < len(b.rules); {
			n, _ := e.at(at)
			if v, standard := n.verdict(); standard && v >= 0 {
				b.set(at, v+by)
			}
			at += uint32(len(n.bytes))
		}
		if _, now, ok := told(f, head, append(moved.rules, b.rules...)); !ok || !maps.Equal(now, sums) {
			t.Errorf("family %d, moved: %v, were %v", f, now, sums)
		}
	}
}

// TestDigestOfWhichRuleJumps: of two rules that are the same but for that, either may.
func TestDigestOfWhichRuleJumps(t *testing.T) {
	var sums [2]uint64
	for which := range sums {
		b := &table{layout: layoutOf(IPv4)}
		b.verdict(-2)
		b.chain("KUBE-A")
		places := [2]uint32{b.verdict(0), b.verdict(0)}
		end := b.verdict(policy)
		b.set(places[1-which], int32([2]uint32{end, places[1]}[which]))
		b.chain("OTHER")
		b.set(places[which], int32(len(b.rules)))
		b.verdict(policy)
		b.chain("ERROR")
		lines, now, ok := told(IPv4, &tableHead{hooks: 1}, b.rules)
		if !ok || len(lines["KUBE-A"]) != 3 || lines["KUBE-A"][1+which] != "-A KUBE-A -j OTHER" {
			t.Fatalf("%d: %q", which, lines)
		}
		sums[which] = now["KUBE-A"]
	}
	if sums[0] == sums[1] {
		t.Error("both have one digest")
	}
}

// TestTwoChainsOfOneName: the kernel accepts such a table, and the two chains cannot be distinguished.
func TestTwoChainsOfOneName(t *testing.T) {
	for _, c := range []struct {
		names []string
		ok    bool
	}{
		{[]string{"KUBE-A", "KUBE-A"}, false}, {[]string{"KUBE-A", "KUBE-A", "KUBE-B"}, false}, {[]string{"KUBE-B", "KUBE-A"}, true},
		{[]string{"KUBE-B", "KUBE-A", "KUBE-B"}, false}, {[]string{"THEIRS", "THEIRS"}, true}, {[]string{"KUBE-B", "KUBE-A", "THEIRS", "THEIRS"}, true},
	} {
		b := &table{layout: layoutOf(IPv4)}
		b.verdict(-2)
		for _, n := range c.names {
			b.chain(n)
			b.verdict(policy)
		}
		b.chain("ERROR")
		if _, _, ok := told(IPv4, &tableHead{hooks: 1}, b.rules); ok != c.ok {
			t.Errorf("%q: read %t", c.names, ok)
		}
	}
}

// FuzzDigest: two tables that differ in anything have chains of one digest only if their
// lines are the same.
func FuzzDigest(f *testing.F) {
	for _, family := range []Family{IPv4, IPv6} {
		_, b := varied(family)
		f.Add(family == IPv6, b.rules, uint16(200), []byte{1, 2, 3})
	}
	f.Fuzz(func(t *testing.T, six bool, rules []byte, at uint16, with []byte) {
		family := IPv4
		if six {
			family = IPv6
		}
		head := &tableHead{hooks: 1 << 3}
		lines, sums, ok := told(family, head, rules)
		if !ok || int(at) >= len(rules) {
			return
		}
		copy(rules[at:], with)
		now, nowSums, ok := told(family, head, rules)
		if !ok {
			return
		}
		for name, list := range now {
			if was, there := lines[name]; there && nowSums[name] == sums[name] && sums[name] != 0 && !slices.Equal(list, was) {
				t.Errorf("%s is %q, was %q", name, list, was)
			}
		}
	})
}
