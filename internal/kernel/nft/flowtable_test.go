package nft

import (
	"context"
	"encoding/hex"
	"errors"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFlowtableBytes compares with the attributes that nft 1.0.6 sends (nft --debug=mnl) for
// `flowtable f { hook ingress priority 0; devices = { lo, d0 }; counter; }`, less the nesting flags.
func TestFlowtableBytes(t *testing.T) {
	want := "0600010078000000" + "0600020066000000" + "28000300" + "0800010000000000" + "0800020000000000" +
		"14000300" + "070001006c6f0000" + "0700010064300000" + "0800070000000002"
	b := &Batch{}
	ft := Flowtable{Ref: TableRef{IPv4, "x"}.Set("f"), Devices: []string{"lo", "d0"}, Counter: true}
	b.NewFlowtable(ft)
	if got := hex.EncodeToString(b.messageAt(0).attrs()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := decodeFlowtable(IPv4, b.messageAt(0).attrs()); !slices.Equal(got.Devices, []string{"d0", "lo"}) || !got.Counter || got.Ref != ft.Ref {
		t.Errorf("decoded %+v", got)
	}
}

type flowKernel interface {
	Kernel
	Flowtables(context.Context, TableRef) ([]Flowtable, error)
}

var (
	_ flowKernel = (*Conn)(nil)
	_ flowKernel = (*Fake)(nil)
)

func TestFlowtables(t *testing.T) {
	t.Run("kernel", func(t *testing.T) {
		k := ownNetns(t)
		b := &Batch{}
		probe := TableRef{IPv4, "probe"}
		b.NewTable(probe, nil)
		b.NewFlowtable(Flowtable{Ref: probe.Set("f")})
		if _, err := k.Commit(context.Background(), b); err != nil {
			t.Skipf("needs a kernel with flowtables: %v", err) // test/vm/tests.txt has it run under one that does
		}
		if out, err := exec.Command("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		useFlowtable(newWorld(t, k, nil), k)
	})
	t.Run("fake", func(t *testing.T) {
		k := NewFake()
		k.SetDevices("d0", "d1", "lo")
		useFlowtable(newWorld(t, k, nil), k)
	})
}

func useFlowtable(w *world, k flowKernel) {
	ft := Flowtable{Ref: w.table.Set("f"), Devices: []string{"d0"}, Counter: true}
	w.must(func(b *Batch) {
		b.NewFlowtable(ft)
		b.NewChain(ChainSpec{Ref: w.table.Chain("forward"), Hook: base("filter", HookForward, 0)})
		b.NewRule(RuleSpec{Chain: w.table.Chain("forward"), Exprs: e(FlowOffload("f"))})
	})
	more := ft
	more.Devices = []string{"d1"}
	w.must(func(b *Batch) { b.NewFlowtable(more) })
	rows, err := k.Flowtables(context.Background(), w.table)
	if err != nil || len(rows) != 1 || !slices.Equal(rows[0].Devices, []string{"d0", "d1"}) || !rows[0].Counter || rows[0].Use != 1 {
		w.Fatalf("%+v %v", rows, err)
	}
	w.refused(unix.EBUSY, []int{1}, func(b *Batch) { b.Tag(1); b.DelFlowtable(ft.Ref) })
	w.refused(unix.ENOENT, []int{2}, func(b *Batch) { b.Tag(2); b.DelFlowtable(ft.Ref, "lo") })
	absent := ft
	absent.Devices = []string{"absent"}
	w.refused(unix.ENOENT, []int{3}, func(b *Batch) { b.Tag(3); b.NewFlowtable(absent) })
	w.must(func(b *Batch) { b.DelFlowtable(ft.Ref, "d0") })
	w.must(func(b *Batch) { b.FlushChain(w.table.Chain("forward")); b.DelFlowtable(ft.Ref) })
	if rows, err := k.Flowtables(context.Background(), w.table); err != nil || len(rows) != 0 {
		w.Fatal(rows, err)
	}
}

// TestNoFlowtablesHere: without support the refusal still names the operation.
func TestFlowtableRefusalNamesItsTag(t *testing.T) {
	w := newWorld(t, ownNetns(t), nil)
	_, err := w.commit(func(b *Batch) {
		b.Tag(4)
		b.NewFlowtable(Flowtable{Ref: w.table.Set("f"), Devices: []string{"absent"}})
	})
	var be *BatchError
	if !errors.As(err, &be) || !slices.Equal(be.Tags, []int{4}) || be.Errors[0].Kind != OpNewFlowtable {
		t.Fatal(err)
	}
}
