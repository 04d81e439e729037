package iptables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

var inNat = writtenChain{IPv4, "nat", "A"}

func restoreOf(chains ...string) *Restore {
	text := "*nat\n:" + strings.Join(chains, " - [0:0]\n:") + " - [0:0]\n-A " + chains[0] + " -j RETURN\nCOMMIT\n"
	return &Restore{Family: IPv4, Input: []byte(text), Commits: 1}
}

func commitOf(generation uint32, chains ...string) nftsave.Commit {
	c := nftsave.Commit{Generation: generation}
	for _, name := range chains {
		c.Places = append(c.Places, nftsave.Place{Family: xt.IPv4, Table: "nat", Chain: name})
	}
	return c
}

func TestLedger(t *testing.T) {
	mostly := 0 // chains in a ledger
	for name, c := range map[string]struct {
		happens func(l *ledger) (generation uint32) // from 7 on, after the mark
		same    bool
	}{
		"nothing":                       {func(*ledger) uint32 { return 7 }, true},
		"another chain is written":      {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 7, 8); return 8 }, true},
		"the chain is written":          {func(l *ledger) uint32 { l.wrote(restoreOf("B", "A"), 7, 8); return 8 }, false},
		"somebody writes":               {func(*ledger) uint32 { return 8 }, false},
		"somebody writes before us":     {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 8, 9); return 9 }, false},
		"somebody writes beside us":     {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 7, 8); return 9 }, false},
		"somebody writes behind us":     {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 7, 8); l.wrote(restoreOf("B"), 9, 10); return 10 }, false},
		"a write ends nobody knows how": {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 7, 0); return 8 }, false},
		"and another one follows":       {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 7, 0); l.wrote(restoreOf("B"), 7, 8); return 8 }, false},
		"the other family's is written": {func(l *ledger) uint32 {
			r := restoreOf("A")
			r.Family = IPv6
			l.wrote(r, 7, 8)
			return 8
		}, true},
		"another table's is written": {func(l *ledger) uint32 {
			l.wrote(&Restore{Family: IPv4, Input: []byte("*filter\n:A - [0:0]\n-A A -j RETURN\nCOMMIT\n")}, 7, 8)
			return 8
		}, true},
		"what is written may be there already": {func(l *ledger) uint32 {
			l.wrote(&Restore{Family: IPv4, Input: []byte("*nat\n-A B -j RETURN\nCOMMIT\n*nat\n:B - [0:0]\nCOMMIT\n")}, 7, 9)
			return 9
		}, false},
		"somebody else is heard in it": {func(l *ledger) uint32 { l.heard(commitOf(8, "B", "A")); return 8 }, false},
		"he is heard in another one":   {func(l *ledger) uint32 { l.heard(commitOf(8, "B")); l.heard(commitOf(9, "C")); return 9 }, true},
		"he is heard between ours": {func(l *ledger) uint32 {
			l.wrote(restoreOf("B"), 7, 8)
			l.heard(commitOf(9, "C"))
			l.wrote(restoreOf("B"), 9, 10)
			return 10
		}, true},
		"he is heard, but not the one before":                   {func(l *ledger) uint32 { l.heard(commitOf(9, "B")); return 9 }, false},
		"he is heard again":                                     {func(l *ledger) uint32 { l.heard(commitOf(8, "B")); l.heard(commitOf(8, "B")); return 8 }, false},
		"what he did is not understood":                         {func(l *ledger) uint32 { l.heard(nftsave.Commit{Generation: 8, Opaque: true}); return 8 }, false},
		"he is heard after a write that ended nobody knows how": {func(l *ledger) uint32 { l.wrote(restoreOf("B"), 7, 0); l.heard(commitOf(1, "B")); return 1 }, false},
		"he writes very many": {func(l *ledger) uint32 {
			for i := range maxWritten + 2 {
				l.heard(commitOf(8+uint32(i), fmt.Sprint("C", i)))
				mostly = max(mostly, len(l.written))
			}
			return 8 + maxWritten + 1
		}, false},
		"what is written has no name": {func(l *ledger) uint32 {
			l.wrote(&Restore{Family: IPv4, Input: []byte("*nat\n-X\nCOMMIT\n")}, 7, 8)
			return 8
		}, false},
		"very many are written": {func(l *ledger) uint32 {
			for i := range maxWritten + 1 {
				l.wrote(restoreOf(fmt.Sprint("C", i)), 7, 7)
				mostly = max(mostly, len(l.written))
			}
			return 7
		}, false},
	} {
		var l ledger
		mark := l.at(7)
		now := l.at(c.happens(&l))
		if got := l.untouched(inNat, mark); got != c.same {
			t.Errorf("%s: the same: %t", name, got)
		}
		if now < mark || !l.untouched(inNat, now) || l.untouched(inNat, 0) {
			t.Errorf("%s: nothing has happened since: %d, %d", name, mark, now)
		}
	}
	if mostly != maxWritten {
		t.Errorf("%d chains were remembered, of %d at the most", mostly, maxWritten)
	}
}

// TestLedgerKnowsNoGeneration: after a write with an unknown outcome every chain is unknown, up to whatever generation commits are heard.
func TestLedgerKnowsNoGeneration(t *testing.T) {
	for _, generation := range []uint32{8, 1 << 31, 1<<32 - 1} {
		var l ledger
		mark := l.at(generation)
		l.wrote(restoreOf("B"), generation, 0)
		if l.heardTo(generation); l.untouched(inNat, mark) {
			t.Errorf("nothing is known, and at %d that nobody has written", generation)
		}
	}
}

// TestLedgerIsAheadOfItsReader: others write on while a reading asks what they have written.
func TestLedgerIsAheadOfItsReader(t *testing.T) {
	for _, c := range []struct {
		before, asked uint32
		same          bool
	}{{7, 7, true}, {9, 7, true}, {7, 8, false}, {1, 1<<32 - 1, true}, {1<<32 - 1, 1, false}} {
		var l ledger
		mark := l.at(c.before)
		if l.heardTo(c.asked); l.untouched(inNat, mark) != c.same {
			t.Errorf("heard to %d, asked at %d: the same: %t", c.before, c.asked, !c.same)
		}
	}
}

func TestEachWritten(t *testing.T) {
	const input = "# so\n*nat\n:A - [0:0]\n-D B -j C\n-A A -m comment --comment \"-X Y\" -j D\n-I E -j F\n-X G\nCOMMIT\n*filter\n:A - [0:0]\n-X H\nCOMMIT\n"
	var got []string
	if !eachWritten([]byte(input), func(table, chain []byte) { got = append(got, string(table)+" "+string(chain)) }) {
		t.Error("a line has no chain")
	}
	if all := strings.Join(got, ", "); all != "nat A, nat B, nat A, nat E, nat G, filter A, filter H" {
		t.Error(all)
	}
	for _, strange := range []string{"-F\n", "-X\n", "-A -j DROP\n", "A\n", "COMMIT\n", ":A - [0:0]\nCOMMIT\n", "-A A -j DROP\nCOMMIT\n*nat\nCOMMIT\n"} {
		if eachWritten([]byte("*nat\n"+strange), func(_, _ []byte) {}) {
			t.Errorf("%q names a chain", strange)
		}
	}
}
