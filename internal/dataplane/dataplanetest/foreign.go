package dataplanetest

import (
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Commit writes to nftables as another program would: without an expected generation.
func Commit(t testing.TB, k nft.Kernel, fill func(b *nft.Batch)) {
	t.Helper()
	var b nft.Batch
	fill(&b)
	if _, err := k.Commit(t.Context(), &b); err != nil {
		t.Fatalf("foreign write: %v", err)
	}
}

// Touch creates a foreign table and deletes it.
func Touch(t testing.TB, k nft.Kernel) {
	t.Helper()
	other := nft.TableRef{Family: nft.IPv4, Name: "somebody"}
	Commit(t, k, func(b *nft.Batch) { b.NewTable(other, nil); b.DelTable(other) })
}

// Meddle adds a foreign rule to a chain.
func Meddle(t testing.TB, k nft.Kernel, into nft.ChainRef) {
	t.Helper()
	Commit(t, k, func(b *nft.Batch) { b.NewRule(nft.RuleSpec{Chain: into, Exprs: []nft.Expr{nft.CountPackets()}}) })
}
