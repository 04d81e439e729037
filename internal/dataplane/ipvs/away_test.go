package ipvs

import (
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// TestFlushedWhileAway: another program flushes the rule set while no agent runs, and the NodePort Service is gone when the next
// one starts. No account names its virtual servers then; they go all the same, and those of the other Service stay.
func TestFlushedWhileAway(t *testing.T) {
	w := newWorld(t, Params{})
	stays, goes := dataplanetest.ClusterIP(model.IPv4, 0, 1), dataplanetest.ClusterIP(model.IPv4, 1, 1)
	goes.Key, goes.Kind = model.FrontendKey{Family: model.IPv4, Protocol: model.TCP, Port: 30080}, model.NodePort
	w.Want(dataplanetest.Service(0), stays)
	w.Want(dataplanetest.Service(1), goes)
	w.Sync(t)
	servers := func() int {
		list, err := ipvs.List(t.Context(), w.ipvs, ipvs.Wanted{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := servers(); n < 2 {
		t.Fatalf("%d virtual servers, want one for the ClusterIP and at least one for the NodePort", n)
	}
	var b nft.Batch
	for _, f := range allFamilies() {
		b.DelTable(tableRef(f))
	}
	if _, err := w.rules.Neighbour().Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	w.d = New(w.d.p)
	w.Bed = dataplanetest.NewBed(w.d, dataplanetest.View())
	w.Load(t)
	w.Base()
	w.Want(dataplanetest.Service(0), stays)
	w.Sync(t)
	if n := servers(); n != 1 {
		t.Errorf("%d virtual servers after the start, want that of the ClusterIP alone", n)
	}
}
