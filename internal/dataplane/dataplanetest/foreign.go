package dataplanetest

import (
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Commit writes to nftables as somebody else would: without a word about generations.
func Commit(t testing.TB, k nft.Kernel, fill func(b *nft.Batch)) {
	t.Helper()
	var b nft.Batch
	fill(&b)
	if _, err := k.Commit(t.Context(), &b); err != nil {
		t.Fatalf("foreign write: %v", err)
	}
}

// Touch makes a table of somebody else's, and deletes it.
func Touch(t testing.TB, k nft.Kernel) {
	t.Helper()
	other := nft.TableRef{Family: nft.IPv4, Name: "somebody"}
	Commit(t, k, func(b *nft.Batch) { b.NewTable(other, nil); b.DelTable(other) })
}

// Meddle puts a rule of somebody else's into a chain.
func Meddle(t testing.TB, k nft.Kernel, into nft.ChainRef) {
	t.Helper()
	Commit(t, k, func(b *nft.Batch) { b.NewRule(nft.RuleSpec{Chain: into, Exprs: []nft.Expr{nft.CountPackets()}}) })
}
