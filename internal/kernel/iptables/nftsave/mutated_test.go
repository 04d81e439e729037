package nftsave

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// dumped are the attributes of all readable rules, as the kernel dumps them.
func dumped(t *testing.T, f xt.Family) (list [][]byte) {
	t.Helper()
	h := newHost(t, Config{})
	lines := []string{":TO - [0:0]", ":ALL - [0:0]"}
	for _, rule := range readable {
		lines = append(lines, "-A ALL "+inFamily(rule, f))
	}
	h.restore(f, "nat", lines...)
	q := question{unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, f, "nat", "ALL"}
	err := h.dumpers[0].settle(context.Background())
	if err == nil {
		err = h.dumpers[0].dump(context.Background(), q, func(a []byte) { list = append(list, bytes.Clone(a)) })
	}
	if err != nil || len(list) != len(readable) {
		t.Fatalf("%d rules, %v", len(list), err)
	}
	return list
}

// well fails where a line is not one, whatever it was made of.
func well(t *testing.T, d *dumper, f xt.Family, c chain, attributes []byte) {
	t.Helper()
	const before = "-A BEFORE\n"
	line, ok := d.line(&Request{Family: f, Ours: anyChain}, &c, slices.Clip(attributes), []byte(before))
	rest, kept := bytes.CutPrefix(line, []byte(before))
	switch {
	case !kept, !ok && len(rest) > 0:
		t.Fatalf("%q of %x", line, attributes)
	case len(rest) > 0 && (!bytes.HasPrefix(rest, []byte("-A C")) || bytes.Count(rest, []byte("\n")) != 1 || rest[len(rest)-1] != '\n'):
		t.Fatalf("%q of %x", rest, attributes)
	}
}

// TestMutatedRules: no bytes of a rule, damaged in any way, are read as anything but a line.
func TestMutatedRules(t *testing.T) {
	const rounds = 2000 // for each rule
	random := rand.New(rand.NewPCG(7, 7))
	var d dumper
	for _, f := range families {
		for _, rule := range dumped(t, f) {
			for n := range len(rule) {
				well(t, &d, f, chain{name: "C"}, rule[:n])
			}
			for range rounds {
				b := bytes.Clone(rule)
				for range 1 + random.IntN(4) {
					switch at := random.IntN(len(b)); random.IntN(3) {
					case 0:
						b[at] = byte(random.Uint32())
					case 1:
						b[at] ^= 1 << random.IntN(8)
					default:
						copy(b[at:], rule[random.IntN(len(rule)):])
					}
				}
				well(t, &d, f, chain{name: "C", builtIn: random.IntN(4) == 0}, b)
			}
		}
	}
}

// FuzzRule is TestMutatedRules for any bytes.
func FuzzRule(f *testing.F) {
	var d dumper
	f.Add(uint8(4), false, []byte{8, 0, 4, 0, 4, 0, 1, 0})
	f.Add(uint8(6), true, appendName(nil, unix.NFTA_RULE_CHAIN, "ALL"))
	f.Fuzz(func(t *testing.T, family uint8, builtIn bool, attributes []byte) {
		well(t, &d, xt.Family(family), chain{name: "C", builtIn: builtIn}, attributes)
	})
}
