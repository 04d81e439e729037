package nftables

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// applyChunks applies the pending ops as the engine does at a cold start.
func applyChunks(t *testing.T, b *dataplanetest.Bed) error {
	t.Helper()
	const chunk = 2_000
	for diffs := b.Pending(); len(diffs) > 0; {
		n := min(chunk, len(diffs))
		if _, err := b.ApplyPart(t.Context(), diffs[:n], diffs[n:]); err != nil {
			return err
		}
		diffs = diffs[n:]
	}
	return nil
}

// A build in chunks chooses the right sizes in its first chunk: no set becomes full.
func TestBuildInChunksIsBuiltOnce(t *testing.T) {
	b := dataplanetest.NewBed(New(Params{Kernel: nft.NewFake(), Families: []model.Family{model.IPv4}}), dataplanetest.View())
	b.Load(t)
	b.Base()
	for i := range 6_000 {
		fe := benchFrontend(i, 6)
		fe.Backends[0].Local = true
		b.Want(dataplanetest.Service(i), fe)
	}
	if err := applyChunks(t, b); err != nil {
		t.Fatal(err)
	}
}

// The fullest shard determines the sizes of a build: this kernel cannot change them later.
func TestBuildIsSizedByTheFullestShard(t *testing.T) {
	for _, want := range []int{0, 7} {
		i := 0
		for shardOf(appendID(nil, benchFrontend(i, 1).Key)) != want {
			i++
		}
		k := nft.NewFake()
		k.FixedSizes = true
		b := dataplanetest.NewBed(New(Params{Kernel: k, Families: []model.Family{model.IPv4}}), dataplanetest.View())
		b.Load(t)
		b.Base()
		b.Want(dataplanetest.Service(i), benchFrontend(i, 4_000))
		if err := applyChunks(t, b); err != nil {
			t.Errorf("4 000 endpoints in shard %d: %v", want, err)
		}
	}
}

// Services that are added one after the other cause a rebuild each time a set must
// double, not more often, and never if the kernel can grow the set.
func TestStreamOfServicesRebuildsSeldom(t *testing.T) {
	t.Run("before 6.5", func(t *testing.T) { streamOfServices(t, true, 2) }) // services goes from 6144 to 12288 to 24576
	t.Run("since", func(t *testing.T) { streamOfServices(t, false, 0) })
}

func streamOfServices(t *testing.T, old bool, want int) {
	t.Helper()
	k := nft.NewFake()
	k.FixedSizes = old
	b := dataplanetest.NewBed(New(Params{Kernel: k, Families: []model.Family{model.IPv4}}), dataplanetest.View())
	b.Load(t)
	b.Base()
	b.Sync(t)
	const services, step = 13_000, 1_000
	rebuilds := 0
	for i := 0; i < services; i += step {
		for j := range step {
			b.Want(dataplanetest.Service(i+j), benchFrontend(i+j, 1))
		}
		err := applyChunks(t, b)
		var full *dataplane.RebuildError
		for ; errors.As(err, &full); rebuilds++ {
			_, err = b.Anew(t.Context(), full.Families[0])
		}
		if err != nil {
			t.Fatalf("after %d services: %v", i, err)
		}
	}
	if rebuilds != want {
		t.Errorf("%d rebuilds for %d services, want %d", rebuilds, services, want)
	}
	if drift := b.Load(t); len(drift)+len(b.Pending()) > 0 {
		t.Errorf("%d objects differ, %d pending", len(drift), len(b.Pending()))
	}
}

// Typical cluster addresses fill the shards evenly: no shard holds twice its share.
func TestShardsAreFilledAlike(t *testing.T) {
	for name, id := range map[string]func(i int) model.FrontendKey{
		"one address after the other": func(i int) model.FrontendKey { return benchFrontend(i, 1).Key },
		"one address, many ports": func(i int) model.FrontendKey {
			k := benchFrontend(0, 1).Key
			k.Port = uint16(30_000 + i)
			return k
		},
		"IPv6": func(i int) model.FrontendKey { return dataplanetest.ClusterIP(model.IPv6, i, 1).Key },
	} {
		var n [shards]int
		const total = 1600
		for i := range total {
			n[shardOf(appendID(nil, id(i)))]++
		}
		for shard, got := range n {
			if got > 2*total/shards {
				t.Errorf("%s: shard %s has %d of %d", name, shardDigits[shard], got, total)
			}
		}
	}
}
