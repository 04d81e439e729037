package nftables

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Every client reaches the endpoint that the table assigns to it, at each sort of address.
// A new table, in which the same endpoints have other places, applies from the next
// connection on.
func TestHashedClientsFollowTheTable(t *testing.T) {
	tw := newTown(t)
	pods := []string{"pod-a1", "pod-a2", "pod-b1", "pod-b2"}
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range bothFamilies {
		for _, size := range []int{64, 2048, 64} {
			table := make(model.HashTable, size)
			for i := range table {
				table[i] = uint16(r.IntN(len(pods)))
			}
			hashed := func(kind model.FrontendKind, to string) model.Frontend {
				fe := tw.stickyFrontend(t, f, kind, to, pods...)
				fe.AffinityTimeout, fe.ConsistentHash, fe.HashTable = 0, true, table
				return fe
			}
			tw.bed.Want(model.ServiceKey{Name: f.String()}, hashed(model.ClusterIP, "vip 2"), hashed(model.LoadBalancer, "lb 2"), hashed(model.NodePort, "node 30090"))
			tw.bed.Sync(t)
			if err := tw.lab.FlushConntrack("node-a"); err != nil {
				t.Fatal(err)
			}
			for from, pod := range tw.met(t, f, "vip 2", "lb 2", "node 30090") {
				h, err := tw.lab.Host(from)
				if err != nil {
					t.Fatal(err)
				}
				if want := pods[table[table.Place(pickAddr(f, h.Addrs))]]; pod != want {
					t.Errorf("%s %s: met %s, the table of %d says %s", f, from, pod, size, want)
				}
			}
			if drift := tw.bed.Load(t); len(drift)+len(tw.bed.Pending()) > 0 {
				t.Errorf("%d objects differ, %d pending", len(drift), len(tw.bed.Pending()))
			}
		}
	}
}

// The places of a table have a meaning: for every previous state of the kernel, the
// result equals the table, and only the places that differ are written.
func TestTableIsWrittenByPlace(t *testing.T) {
	counter := nft.NewCounter(nft.NewFake())
	b := dataplanetest.NewBed(New(Params{Kernel: counter, Families: []model.Family{model.IPv4}}), dataplanetest.View())
	b.Load(t)
	b.Base()
	fe := dataplanetest.ClusterIP(model.IPv4, 1, 4)
	fe.ConsistentHash, fe.HashTable = true, model.HashTable{0, 1, 2, 3, 3, 2, 1, 0}
	b.Want(fe.Service, fe)
	b.Sync(t)
	before := counter.Counts()
	fe.HashTable = model.HashTable{0, 1, 3, 2, 3, 2, 1, 0} // two places swap endpoints
	b.Want(fe.Service, fe)
	b.Sync(t)
	if n := counter.Counts().Elements - before.Elements; n != 4 {
		t.Errorf("%d elements were written for two places", n)
	}
	id := string(appendID(nil, fe.Key))
	got := map[uint32]string{}
	err := counter.Elements(t.Context(), tableRef(model.IPv4).Set(shardNames[shardOf(id)]), func(e *nft.Element) error {
		got[binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])] = string(e.Data[:6])
		return nil
	})
	if err != nil || len(got) != len(fe.HashTable) {
		t.Fatalf("%d places, %v", len(got), err)
	}
	for i, place := range fe.HashTable {
		if want := string(appendSlot(nil, &fe.Backends[place], defOf(kindEndpoints))); got[uint32(hashBase+i)] != want {
			t.Errorf("place %d holds %x, want %x", i, got[uint32(hashBase+i)], want)
		}
	}
}
