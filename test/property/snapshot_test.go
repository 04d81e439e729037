package property

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// snapshot reads the agent's tables directly, not through the driver's Load, into
// comparable lines. Slots of a Frontend's pool are compared as a multiset (the slot of an
// endpoint has no meaning), but must be numbered from 0 without a gap. Shared chains
// without a jump to them are omitted: they linger.
func snapshot(t *testing.T, k nft.Kernel) (out []string) {
	t.Helper()
	whileStill(t, k, func(k nft.Kernel) { out = lines(t, k) })
	for _, line := range out {
		if strings.Contains(line, holes) {
			t.Fatal(line)
		}
	}
	return out
}

func lines(t *testing.T, k nft.Kernel) (out []string) {
	t.Helper()
	ctx := context.Background()
	tables, err := k.Tables(ctx)
	check(t, err)
	for _, tb := range tables {
		if tb.Ref.Name != "fairlead" {
			continue
		}
		out = append(out, fmt.Sprintf("table %v %x", tb.Ref, tb.UserData))
		out = append(out, chains(t, k, tb.Ref)...)
		sets, err := k.Sets(ctx, tb.Ref)
		check(t, err)
		for _, s := range sets {
			out = append(out, fmt.Sprintf("set %v %x/%d %x/%d", s.Ref, s.KeyType, s.KeyLen, s.DataType, s.DataLen))
			out = append(out, elements(t, k, s)...)
		}
	}
	sort.Strings(out)
	return out
}

// hashBase is the first place of a consistent-hash table.
const hashBase = 1 << 16

func elements(t *testing.T, k nft.Kernel, s nft.Set) (out []string) {
	endpoints := strings.Contains(s.Ref.Name, "eps")
	pools, tables := map[string][]place32{}, map[string][]place32{}
	check(t, k.Elements(context.Background(), s.Ref, func(e *nft.Element) error {
		if !endpoints {
			out = append(out, fmt.Sprintf("%v: %x-%x = %x %v %d", s.Ref, e.Key, e.KeyEnd, e.Data, e.Verdict, e.Flags))
			return nil
		}
		n := len(e.Key) - 4
		slot, of := binary.LittleEndian.Uint32(e.Key[n:]), pools
		if slot >= hashBase {
			slot, of = slot-hashBase, tables
		}
		of[string(e.Key[:n])] = append(of[string(e.Key[:n])], place32{slot, fmt.Sprintf("%x", e.Data)})
		return nil
	}))
	for group, list := range pools { // a multiset: the slot of an endpoint has no meaning
		out = append(out, numbered(s, group, list)...)
		slices.SortFunc(list, func(a, b place32) int { return strings.Compare(a.value, b.value) })
		out = append(out, fmt.Sprintf("%v: pool %x = %v", s.Ref, group, values(list)))
	}
	for group, list := range tables { // here the place has a meaning
		out = append(out, numbered(s, group, list)...)
		out = append(out, fmt.Sprintf("%v: table %x = %d places, digest %x", s.Ref, group, len(list), sha256.Sum256([]byte(strings.Join(values(list), " ")))))
	}
	return out
}

// place32 is one place of a pool or a table, with its value.
type place32 struct {
	at    uint32
	value string
}

// holes is part of the line of a list whose places have gaps or do not start at 0.
const holes = "holes among places"

// numbered sorts a list by place, and returns a line if it has gaps.
func numbered(s nft.Set, group string, list []place32) []string {
	slices.SortFunc(list, func(a, b place32) int { return cmp.Compare(a.at, b.at) })
	for i := range list {
		if list[i].at != uint32(i) {
			return []string{fmt.Sprintf("%v: %x has %s: %d places, and number %d at %d", s.Ref, group, holes, len(list), list[i].at, i)}
		}
	}
	return nil
}

func values(list []place32) (out []string) {
	for i := range list {
		out = append(out, list[i].value)
	}
	return out
}

// chains returns the rules of each chain that packets can reach: from a hook, or from the
// verdict of an element.
func chains(t *testing.T, k nft.Kernel, table nft.TableRef) (out []string) {
	ctx := context.Background()
	rows, err := k.Chains(ctx, table)
	check(t, err)
	rules, err := k.Rules(ctx, table)
	check(t, err)
	reached := verdicts(t, k, table)
	for _, c := range rows {
		if c.Hook != nil {
			reached[c.Ref.Name] = true
		}
	}
	for n := -1; n != len(reached); { // each iteration follows one more jump
		n = len(reached)
		for _, r := range rules {
			for _, c := range rows {
				if reached[r.Chain.Name] && leadsTo(r.Exprs, c.Ref.Name) {
					reached[c.Ref.Name] = true
				}
			}
		}
	}
	for _, c := range rows {
		if reached[c.Ref.Name] {
			out = append(out, fmt.Sprintf("chain %v %+v", c.Ref, hookOf(c)))
		}
	}
	at := map[string]int{}
	for _, r := range rules {
		if reached[r.Chain.Name] {
			at[r.Chain.Name]++
			out = append(out, fmt.Sprintf("rule %v %d %x", r.Chain, at[r.Chain.Name], nft.NormalizeExprs(r.Exprs)))
		}
	}
	return out
}

// verdicts returns the chains to which elements jump.
func verdicts(t *testing.T, k nft.Kernel, table nft.TableRef) map[string]bool {
	reached := map[string]bool{}
	sets, err := k.Sets(context.Background(), table)
	check(t, err)
	for _, s := range sets {
		check(t, k.Elements(context.Background(), s.Ref, func(e *nft.Element) error {
			if e.Verdict.Chain != "" {
				reached[e.Verdict.Chain] = true
			}
			return nil
		}))
	}
	return reached
}

// leadsTo reports whether the expressions contain the attribute NFTA_VERDICT_CHAIN (2)
// with that name.
func leadsTo(exprs []byte, chain string) bool {
	attr := binary.NativeEndian.AppendUint16(nil, uint16(4+len(chain)+1))
	attr = append(binary.NativeEndian.AppendUint16(attr, 2), chain...)
	return bytes.Contains(exprs, append(attr, 0))
}

func hookOf(c nft.Chain) any {
	if c.Hook == nil {
		return "-"
	}
	return *c.Hook
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// difference lists the lines that only one of the two contains.
func difference(a, b []string) string {
	var sb strings.Builder
	in := map[string]int{}
	for _, l := range a {
		in[l]++
	}
	for _, l := range b {
		in[l]--
	}
	n := 0
	for _, l := range append(slices.Clone(a), b...) {
		if in[l] != 0 && n < 20 {
			fmt.Fprintf(&sb, "%+d %s\n", in[l], l)
			in[l] = 0
			n++
		}
	}
	return sb.String()
}
