package nftables

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// BenchmarkSurvey measures the reads and comparisons of an audit, without the engine's syncs in between: with rests and without, in a
// cluster where a fifth of the endpoints is on this node.
func BenchmarkSurvey(b *testing.B) {
	for _, n := range benchSizes {
		for _, rests := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/rests=%v", n, rests), func(b *testing.B) { benchSurvey(b, n, rests) })
		}
	}
}

func benchSurvey(b *testing.B, n int, rests bool) {
	ns := ownNetns(b)
	cfg := nft.Config{NetNS: ns.FD()}
	if rests {
		cfg.WrapCommands = netlink.Gently
	}
	reader, err := nft.Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = reader.Close() })
	d := New(Params{Kernel: ns, Surveyor: reader, Families: []model.Family{model.IPv4}})
	bed := benchBed(b, d, n)
	for i := range n {
		fe := benchFrontend(i, benchEndpoints)
		for j := range fe.Backends[:benchEndpoints/5] {
			fe.Backends[j].Local = true
		}
		bed.Want(fe.Service, fe)
	}
	bed.Sync(b)
	runtime.GC()
	start := cpuTime()
	for b.Loop() {
		c := bed.Track.Compare()
		if err := d.Survey(b.Context(), func(k dataplane.Key, v string) { c.Found(k, v) }); err != nil {
			b.Fatal(err)
		}
		if drift := c.End(); len(drift) > 0 {
			b.Fatalf("%d objects differ", len(drift))
		}
	}
	report(b, cpuTime()-start)
}
