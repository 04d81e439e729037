package ipvs

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/model"
)

// BenchmarkSurvey measures what one reading of everything costs at 1000 Services of ten endpoints, or as many as FAIRLEAD_BENCH_SERVICES says,
// where the kernel has IPVS (bench/ipvs/survey.sh).
func BenchmarkSurvey(b *testing.B) {
	services := 1000
	if text := os.Getenv("FAIRLEAD_BENCH_SERVICES"); text != "" {
		var err error
		if services, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	k := kernelBed(b)
	driver := New(Params{NFT: k.nft, IPVS: k.ipvs, Addresses: k.addrs, Beside: k.beside, Families: []model.Family{model.IPv4}})
	bed := dataplanetest.NewBed(driver, dataplanetest.View())
	bed.Load(b)
	bed.Base()
	for i := range services {
		bed.Want(dataplanetest.Service(i), dataplanetest.ClusterIP(model.IPv4, i, 10))
	}
	bed.Sync(b)
	part := func(what string, read func(r *reader) error) {
		b.Run(what, func(b *testing.B) {
			for range b.N {
				r, done, err := driver.beside(nil)
				if err == nil {
					err = read(r)
					done()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	ctx := context.Background()
	part("all", func(r *reader) error { _, err := r.everything(ctx); return err }) // as in an audit that finds nothing
	part("named", func(r *reader) error {                                          // as in one that finds something, and in a Load
		r.emit = func(dataplane.Key, string) {}
		_, err := r.everything(ctx)
		return err
	})
	part("tables", func(r *reader) (err error) {
		if r.at, err = r.from.NFT.Generation(ctx); err != nil {
			return err
		}
		return r.tables(ctx)
	})
	part("servers", func(r *reader) error { // and the device
		r.mine = nil
		return r.all(ctx)
	})
	part("device", func(r *reader) error { _, err := r.from.Addresses.List(ctx); return err })
	none := func(*ipvs.Virtual, []ipvs.Real) error { return nil }
	part("servers-unnamed", func(r *reader) error { return r.from.IPVS.All(ctx, ipvs.Wanted{OnlyIPv4: true}, none) })
	part("servers-by-netlink", func(r *reader) error { // as of IPv6
		list, err := ipvs.List(ctx, r.from.IPVS, ipvs.Wanted{OnlyIPv4: true})
		for i := 0; i < len(list) && err == nil; i++ {
			_, err = r.from.IPVS.Reals(ctx, list[i].VirtualKey)
		}
		return err
	})
	part("virtual-servers", func(r *reader) error { _, err := ipvs.List(ctx, r.from.IPVS, ipvs.Wanted{OnlyIPv4: true}); return err })
	part("virtual-servers-of-both", func(r *reader) error { _, err := ipvs.List(ctx, r.from.IPVS, ipvs.Wanted{}); return err })
}
