package iptables

import (
	"maps"
	"testing"
)

// TestNoDigestOfUnknownJumps: a rule that jumps to no chain, to a built-in one or to one with an unprintable name
// cannot be printed. Its chain has no digest, so it never counts as unchanged, whatever else it contains.
func TestNoDigestOfUnknownJumps(t *testing.T) {
	b := &table{layout: layoutOf(IPv4)}
	b.verdict(-2) // PREROUTING
	b.chain("THE IRS")
	unclean := int32(len(b.rules))
	b.verdict(policy)
	b.chain("OTHER")
	known := int32(len(b.rules))
	b.verdict(policy)
	for name, to := range map[string]int32{"of the kernel's": 0, "no name": unclean, "amidst a rule": known + 8, "known": known} {
		withRules := &table{layout: b.layout, rules: append([]byte(nil), b.rules...)}
		withRules.chain("KUBE-A")
		first, second := withRules.verdict(0), withRules.verdict(0)
		withRules.verdict(policy)
		withRules.chain("ERROR")
		withRules.set(first, to)
		withRules.set(second, known)
		e := entries{layout: b.layout, rules: withRules.rules, seed: testSeed}
		if !e.findChains(&tableHead{hooks: 1}, oursByName) {
			t.Fatalf("%s: the table cannot be read", name)
		}
		for _, c := range e.chains {
			if c.ours && (c.digest != 0) != (to == known) {
				t.Errorf("%s: the digest of %s is %x", name, c.name, c.digest)
			}
		}
	}
}

// TestFound: found returns the result of this read, whatever the result of the one before.
func TestFound(t *testing.T) {
	chain := func(name string, before, digest uint64) xchain {
		return xchain{name: name, ours: name != "OTHER", before: before, digest: digest}
	}
	known := map[string]knownChain{"A": {"A", 1}, "B": {"B", 2}}
	for name, c := range map[string]struct {
		chains []xchain
		want   map[string]knownChain
	}{
		"the same": {[]xchain{chain("A", 1, 1), chain("B", 2, 2), chain("OTHER", 0, 9)}, known},
		"changed":  {[]xchain{chain("A", 1, 1), chain("B", 2, 3)}, map[string]knownChain{"A": {"A", 1}, "B": {"B", 3}}},
		"gone":     {[]xchain{chain("A", 1, 1)}, map[string]knownChain{"A": {"A", 1}}},
		"new":      {[]xchain{chain("A", 1, 1), chain("B", 2, 2), chain("C", 0, 4)}, map[string]knownChain{"A": {"A", 1}, "B": {"B", 2}, "C": {"C", 4}}},
		"another":  {[]xchain{chain("A", 1, 1), chain("C", 0, 4)}, map[string]knownChain{"A": {"A", 1}, "C": {"C", 4}}},
		"unknown":  {[]xchain{chain("A", 1, 1), chain("B", 0, 0)}, map[string]knownChain{"A": {"A", 1}, "B": {"B", 0}}},
	} {
		e := entries{chains: c.chains, known: known}
		if got := e.found(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestUntouched: a chain without a digest is never what it was.
func TestUntouched(t *testing.T) {
	for _, c := range []struct {
		before, digest uint64
		want           bool
	}{{1, 1, true}, {1, 2, false}, {0, 1, false}, {1, 0, false}, {0, 0, false}} {
		x := xchain{before: c.before, digest: c.digest}
		if got := x.untouched(); got != c.want {
			t.Errorf("%x, then %x: %t", c.before, c.digest, got)
		}
	}
}

// TestDigestsOfTheLastReading: a read receives the result of the last one if it refers to that, and of no other; one that began
// earlier and ends later does not replace it. Tables and families are separate.
func TestDigestsOfTheLastReading(t *testing.T) {
	d := newDigests()
	same := func(string) bool { return true }
	reading := func(f Family, table string, since Mark) *Reading {
		return &Reading{Family: f, Table: table, Since: since, Same: same}
	}
	one, two := map[string]knownChain{"A": {"A", 1}}, map[string]knownChain{"A": {"A", 2}}
	first, second := d.mark(), d.mark()
	if first == 0 || second <= first {
		t.Fatalf("two readings began at %d and %d", first, second)
	}
	d.keep(reading(IPv4, "nat", 0), second, two)
	d.keep(reading(IPv4, "nat", 0), first, one)
	for _, c := range []struct {
		of   *Reading
		want map[string]knownChain
	}{
		{reading(IPv4, "nat", second), two}, {reading(IPv4, "nat", first), nil}, {reading(IPv4, "nat", 0), nil},
		{reading(IPv6, "nat", second), nil}, {reading(IPv4, "filter", second), nil},
	} {
		if got := d.since(c.of); !maps.Equal(got, c.want) {
			t.Errorf("since %d in %s of family %d: %v, want %v", c.of.Since, c.of.Table, c.of.Family, got, c.want)
		}
	}
	third := d.mark()
	d.keep(reading(IPv4, "nat", 0), third, one)
	if got := d.since(reading(IPv4, "nat", third)); !maps.Equal(got, one) {
		t.Errorf("of the newest reading: %v", got)
	}
}
