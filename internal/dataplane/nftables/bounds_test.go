package nftables

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// An end whose start another program deleted is detected and deleted: it would cut
// short the next range that contains it.
func TestLoneEndGoes(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
		b.Load(t)
		ranges := func(list ...string) {
			b.View.ServiceCIDRs = nil
			for _, p := range list {
				b.View.ServiceCIDRs = append(b.View.ServiceCIDRs, netip.MustParsePrefix(p))
			}
			b.Base()
		}
		ranges("10.96.0.0/24", "10.97.0.0/16")
		b.Sync(t)
		set := tableRef(model.IPv4).Set("service-cidrs")
		dataplanetest.Commit(t, k, func(batch *nft.Batch) {
			batch.DelElement(set, &nft.Element{Key: []byte{10, 96, 0, 0}})
		})
		ranges("10.97.0.0/16")
		b.Load(t)
		if _, err := b.Apply(t.Context(), b.Pending()); errors.Is(err, dataplane.ErrConflict) {
			b.Load(t)
			b.Sync(t) // Linux 6.18 at times reports that the end does not exist, and on retry that it does
		}
		left := 0
		if err := k.Elements(t.Context(), set, func(*nft.Element) error { left++; return nil }); err != nil {
			t.Fatal(err)
		}
		if left != 2 {
			t.Errorf("%d elements are left", left)
		}
		ranges("10.96.0.0/16")
		b.Sync(t)
		if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
			t.Errorf("%d objects differ, %d pending: %v", len(drift), len(b.Pending()), drift)
		}
	})
}
