package nft

import (
	"context"
	"testing"
)

// TestEmptyHooks: base chains lose their rules, the others keep theirs, and a missing table is no error.
func TestEmptyHooks(t *testing.T) {
	k, ctx := NewFake(), context.Background()
	table := TableRef{Family: IPv4, Name: "t"}
	base, plain := table.Chain("base"), table.Chain("plain")
	var b Batch
	b.NewTable(table, nil)
	b.NewChain(ChainSpec{Ref: plain})
	b.NewChain(ChainSpec{Ref: base, Hook: &Hook{Type: "filter", Num: HookForward, Priority: 0}})
	for _, c := range []ChainRef{base, plain} {
		b.NewRule(RuleSpec{Chain: c, Exprs: []Expr{CountPackets()}})
	}
	if _, err := k.Commit(ctx, &b); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if err := EmptyHooks(ctx, k, table); err != nil {
			t.Fatal(err)
		}
	}
	left, err := k.Rules(ctx, table)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Chain != plain {
		t.Errorf("%d rules are left, want the plain chain's only", len(left))
	}
	if err := EmptyHooks(ctx, k, TableRef{Family: IPv6, Name: "none"}); err != nil {
		t.Errorf("a table that is not there: %v", err)
	}
}
