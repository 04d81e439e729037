package nftables

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Nearly every batch is one endpoint of one Service: the declarations of a table must not
// be computed for it.
func TestSmallBatchAllocatesLittle(t *testing.T) {
	d := New(Params{Kernel: nft.NewFake()})
	one := dataplane.Key{Kind: kindHairpin, Family: model.IPv4, ID: "\x0a\x80\x00\x01\x06\x1f\x90"}
	b := dataplane.Batch{Ops: []dataplane.Op{{Key: one, Want: present}}}
	n := testing.AllocsPerRun(100, func() {
		d.plan.sort(b)
		if _, err := d.write(b.Ops, &[2]remains{}, nil); err != nil {
			t.Fatal(err)
		}
	})
	if n > 16 {
		t.Errorf("%.0f allocations to write one element, want at most 16", n)
	}
}

// The value of a Service of few endpoints takes one memory allocation.
func TestFewSlotsAllocateOnce(t *testing.T) {
	list := make([]model.Backend, 10)
	for i := range list {
		list[i] = model.Backend{Addr: netip.AddrFrom4([4]byte{10, 128, 0, byte(i)}), Port: 80, Weight: 1}
	}
	if n := testing.AllocsPerRun(100, func() { packSlots(list, model.IPv4, defOf(kindEndpoints)) }); n > 1 {
		t.Errorf("%.0f allocations, want 1", n)
	}
}
