package nftables

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// nodePortAddrs fills the smallest set with n elements.
func nodePortAddrs(b *dataplanetest.Bed, n int) {
	b.View.NodePortAddrs = nil
	for i := range n {
		b.View.NodePortAddrs = append(b.View.NodePortAddrs, netip.AddrFrom4([4]byte{172, 18, byte(i >> 8), byte(i)}))
	}
	b.Base()
}

// A full set grows without a rebuild, maxGrowth times; then a rebuild replaces it.
func TestFullSetGrows(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b := dataplanetest.NewBed(New(Params{Kernel: k, Families: []model.Family{model.IPv4}}), dataplanetest.View())
		b.Load(t)
		nodePortAddrs(b, 700)
		b.Sync(t)
		const first = 768 << 1 // 700, and half as many again
		for _, step := range []struct{ n, size, made int }{{1_500, first, first}, {1_600, 2 * first, first}, {10_000, 8 * first, first},
			{13_000, 16 * first, 16 * first}} {
			nodePortAddrs(b, step.n)
			b.Sync(t)
			if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
				t.Errorf("at %d: %d objects differ, %d pending: %v", step.n, len(drift), len(b.Pending()), drift)
			}
			d := b.Driver.(*Driver)
			if d.sizes.fixed {
				t.Skip("this kernel raises no limit") // before 6.5
			}
			size, made := d.sizes.scale[0][kindNodePortIP], d.sizes.made[0][kindNodePortIP]
			if def := defOf(kindNodePortIP); int(def.size(size)) != step.size || int(def.size(made)) != step.made {
				t.Errorf("at %d: size %d, made for %d", step.n, def.size(size), def.size(made))
			}
		}
	})
}
