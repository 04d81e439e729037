package nftables

import (
	"errors"
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Lists that come in pages are rendered again and again before the first write.
// An object that was rendered twice is reserved once (C8).
func TestRenderingTwiceReservesOnce(t *testing.T) {
	sizes := func(times int) map[string]uint32 {
		k := nft.NewFake()
		b := dataplanetest.NewBed(New(Params{Kernel: k, Families: []model.Family{model.IPv4}}), dataplanetest.View())
		b.Load(t)
		for range times {
			b.Base()
			for i := range 2_000 {
				b.Want(dataplanetest.Service(i), benchFrontend(i, 10))
			}
		}
		if err := applyChunks(t, b); err != nil {
			t.Fatal(err)
		}
		sets, err := k.Sets(t.Context(), tableRef(model.IPv4))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]uint32{}
		for i := range sets {
			out[sets[i].Ref.Name] = sets[i].Size
		}
		return out
	}
	if once, often := sizes(1), sizes(6); !maps.Equal(once, often) {
		t.Errorf("rendered once the sets are %v, six times %v", once, often)
	}
}

// Load writes nothing, not even after an Apply whose answer was lost.
func TestLoadWritesNothing(t *testing.T) {
	faulty := &nft.Faulty{Kernel: nft.NewFake()}
	b, fe := stickyTown(t, faulty, model.IPv4, model.ExternalIP)
	faulty.OnCommit = func(*nft.Batch) nft.Fault { return nft.Fault{Err: unix.ENOBUFS, After: true} }
	fe.LocalOnly, fe.LocalVerdict, fe.LocalBackends = true, model.Forward, fe.Backends[:1]
	b.Want(fe.Service, fe)
	if _, err := b.Apply(t.Context(), b.Pending()); err == nil || dataplane.NothingDone(err) {
		t.Fatalf("the commit's answer was lost, Apply says %v", err)
	}
	faulty.OnCommit = func(*nft.Batch) nft.Fault { return nft.Fault{Err: errors.New("a Load wrote")} }
	b.Load(t)
	if n := len(b.Pending()); n > 0 {
		t.Errorf("%d differences after a commit that was done", n)
	}
}
