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

// In one batch a set of IPv6 is full and an object of IPv4 is refused. The set grows,
// the error names that object only, and all others can be applied.
func TestAFullSetBesideARefusedObject(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
		b.Load(t)
		b.Base()
		b.Sync(t)
		for i := range 4_000 { // the set doubles three times
			a := [16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}
			b.View.NodePortAddrs = append(b.View.NodePortAddrs, netip.AddrFrom16(a))
		}
		b.Base()
		poison := model.ServiceKey{Namespace: "suite", Name: "poison"}
		b.Want(poison, *overlapping(model.IPv4))
		var err error
		for range 8 { // a Load after each refusal that a stale synced state may have caused
			var invalid *dataplane.InvalidError
			if _, err = b.Apply(t.Context(), b.Pending()); err == nil || !errors.As(err, &invalid) {
				break
			}
			owners := b.Track.Owners(invalid.Keys)
			if _, blamed := owners[poison]; !blamed || len(owners) != 1 {
				t.Fatalf("blamed are %v: %v", owners, err)
			}
			b.Track.Hold(poison, b.Now)
		}
		if b.Driver.(*Driver).sizes.fixed {
			t.Skip("this kernel raises no limit") // before 6.5
		}
		if err != nil {
			t.Fatal(err)
		}
		if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
			t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
		}
	})
}
