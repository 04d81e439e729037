package iptables

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/model"
)

// TestPartialRestoresEqualScratch is what KEP-3453 feared: that a partial restore
// succeeds and is wrong. After many of them iptables-save must print, line by
// line and in the same order within each chain, what one restore of everything
// into an empty kernel gives. FAIRLEAD_LONG=1 makes them thousands.
func TestPartialRestoresEqualScratch(t *testing.T) {
	steps := 150
	if os.Getenv("FAIRLEAD_LONG") != "" {
		steps = 2500
	}
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		families := []model.Family{model.IPv4, model.IPv6}
		r := rand.New(rand.NewPCG(3, uint64(len(b))))
		services := dataplanetest.Catalogue(families)
		ns := ownNetns(t, b)
		counted := iptables.NewCounter(ns.Conn)
		bed := dataplanetest.NewBed(New(Params{Kernel: counted}), dataplanetest.View())
		bed.Load(t)
		bed.WantAll(services)
		bed.Sync(t)
		for range steps {
			for range 1 + r.IntN(3) {
				k := dataplanetest.Mutate(r, services, families)
				bed.Want(k, services[k]...)
			}
			bed.Sync(t)
		}
		fresh := ownNetns(t, b)
		scratch := dataplanetest.NewBed(New(Params{Kernel: fresh.Conn}), dataplanetest.View())
		scratch.Load(t)
		scratch.WantAll(services)
		scratch.Sync(t)
		got, want := sections(ns.save(t)), sections(fresh.save(t))
		for chain, text := range want {
			if got[chain] != text {
				t.Errorf("%s after %d restores holds\n%swant\n%s", chain, counted.Counts().Restores, got[chain], text)
			}
		}
		for chain := range got {
			if _, ok := want[chain]; !ok {
				t.Errorf("%s is left over", chain)
			}
		}
		t.Logf("%d restores, %d kB, no difference in %d chains", counted.Counts().Restores, counted.Counts().Bytes>>10, len(want))
	})
}

// TestRestoreTakesWhatSavePrints: what people save loads again and is the same.
func TestRestoreTakesWhatSavePrints(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		ns := ownNetns(t, b)
		d := New(Params{Kernel: ns.Conn, Counters: ns.counters(t)})
		if _, err := d.Probe(t.Context()); err != nil || !d.counts {
			t.Fatalf("probe: %v; rules count: %t", err, d.counts)
		}
		bed := dataplanetest.NewBed(d, dataplanetest.View())
		bed.Load(t)
		bed.WantAll(dataplanetest.Catalogue([]model.Family{model.IPv4, model.IPv6}))
		bed.Sync(t)
		before := ns.save(t)
		ns.sh(t, "for p in $IPT $IP6T; do $p-save > $XTABLES_LOCKFILE.saved; $p-restore < $XTABLES_LOCKFILE.saved; done")
		if after := ns.save(t); after != before {
			t.Errorf("saved and restored is\n%s\nwas\n%s", after, before)
		}
	})
}
