package nftables

import (
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Clients of all Service ports and families are counted, whether or not the kernel
// reports their number.
func TestOccupancy(t *testing.T) {
	kernels(t, func(t *testing.T, k nft.Kernel) {
		b := dataplanetest.NewBed(New(Params{Kernel: k}), dataplanetest.View())
		b.Load(t)
		b.Base()
		for i, f := range bothFamilies {
			fe := sticky(f, model.ClusterIP, 4)
			fe.Service = dataplanetest.Service(i)
			b.Want(fe.Service, fe)
			b.Sync(t)
			remember(t, k, &fe, 30+i)
			b.Load(t)
		}
		if got, err := NewOccupancy(k).Read(t.Context()); err != nil || got != (Remembered{Clients: 61}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("full", func(t *testing.T) {
		k := nft.NewFake()
		_, fe := stickyTown(t, k, model.IPv4, model.ClusterIP)
		remember(t, k, &fe, maxClients)
		o := NewOccupancy(k)
		got, err := o.Read(t.Context())
		if err != nil || got.Full != 1 || got.Clients != maxClients {
			t.Errorf("%+v, %v", got, err)
		}
		counter := nft.NewCounter(k)
		o.k = counter
		if again, err := o.Read(t.Context()); err != nil || again != got || counter.Counts().Reads > 0 {
			t.Errorf("%+v, %v: read again at once, with %d reads", again, err, counter.Counts().Reads)
		}
	})
}
