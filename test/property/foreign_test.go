package property

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// vandal edits the agent's tables as another program might. The kernel may reject an
// edit: not every one is possible in every state.
func vandal(t *testing.T, k nft.Kernel, r *rand.Rand) {
	t.Helper()
	ctx := context.Background()
	table := nft.TableRef{Family: []nft.Family{nft.IPv4, nft.IPv6}[r.IntN(2)], Name: "fairlead"}
	var b nft.Batch
	switch r.IntN(6) {
	case 0:
		b.DelTable(table)
	case 1, 2:
		deleteSomeElement(t, still{k, new(bool)}, table, r, &b)
	case 3:
		set := table.Set("eps-0")
		b.AddElement(set, &nft.Element{Key: append(make([]byte, poolKey(table)-4), byte(r.IntN(9)), 0, 0, 0), Data: make([]byte, poolData(table))})
	case 4:
		if rules, err := k.Rules(ctx, table); err == nil && len(rules) > 0 {
			rule := rules[r.IntN(len(rules))]
			b.DelRule(rule.Chain, rule.Handle)
		}
	case 5:
		b.NewChain(nft.ChainSpec{Ref: table.Chain("vandal")})
	}
	if b.Len() > 0 {
		_, _ = k.Commit(ctx, &b) // see above
	}
}

func poolKey(t nft.TableRef) int  { return t.Family.AddrLen() + 12 }
func poolData(t nft.TableRef) int { return t.Family.AddrLen() + 4 }

func deleteSomeElement(t *testing.T, k nft.Kernel, table nft.TableRef, r *rand.Rand, b *nft.Batch) {
	t.Helper()
	sets, err := k.Sets(context.Background(), table)
	check(t, err)
	if len(sets) == 0 {
		return
	}
	s := sets[r.IntN(len(sets))]
	n := 0
	check(t, k.Elements(context.Background(), s.Ref, func(e *nft.Element) error {
		if n++; r.IntN(n) == 0 {
			b.Reset()
			b.DelElement(s.Ref, &nft.Element{Key: append([]byte(nil), e.Key...), KeyEnd: append([]byte(nil), e.KeyEnd...), Flags: e.Flags})
		}
		return nil
	}))
}
