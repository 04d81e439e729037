package nftables

import (
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// The chains of a Service port have the same digest in both families. After one family
// has deleted its chain, that of the other can still be rebuilt.
func TestRulesOfOneFamilyOutliveThoseOfTheOther(t *testing.T) {
	for _, kind := range []model.FrontendKind{model.ClusterIP, model.NodePort} {
		for i, gone := range bothFamilies {
			t.Run(kind.String()+" without "+gone.String(), func(t *testing.T) {
				b := dataplanetest.NewBed(New(Params{Kernel: nft.NewFake()}), dataplanetest.View())
				b.Load(t)
				b.Base()
				both := []model.Frontend{sticky(model.IPv4, kind, 4), sticky(model.IPv6, kind, 4)}
				both[0].Masquerade, both[1].Masquerade = true, true
				b.Want(both[0].Service, both...)
				b.Sync(t)
				b.Want(both[0].Service, both[1-i])
				b.Sync(t)
				if _, err := b.Anew(t.Context(), bothFamilies[1-i]); err != nil {
					t.Fatal(err)
				}
				if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
					t.Errorf("%d objects differ, %d pending: %v", len(drift), len(b.Pending()), drift)
				}
			})
		}
	}
}

// A rebuild drops the cached rules that it replaces, and none of the other family.
func TestRebuildDropsTheRulesItReplaces(t *testing.T) {
	b := dataplanetest.NewBed(New(Params{Kernel: nft.NewFake()}), dataplanetest.View())
	b.Load(t)
	b.Base()
	want := func(n int) {
		four, six := sticky(model.IPv4, model.ClusterIP, n), sticky(model.IPv6, model.ClusterIP, n)
		b.Want(four.Service, four, six)
	}
	want(4)
	b.Sync(t)
	book := b.Driver.(*Driver).chains.own
	before := len(book)
	want(8)
	for _, f := range bothFamilies {
		if _, err := b.Anew(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if len(book) != before {
		t.Errorf("%d chains' rules are kept, before it were %d", len(book), before)
	}
}
