package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// bigMap is the endpoint map with n slots, ten to a Service.
type bigMap struct {
	set SetRef
	key [16]byte
	val [8]byte
	e   Element
}

func newBigMap(t TableRef) *bigMap {
	m := &bigMap{set: t.Set("eps")}
	copy(m.key[:], slotElement(0, "10.0.0.1").Key)
	copy(m.val[:], slotElement(0, "10.0.0.1").Data)
	m.e = Element{Key: m.key[:], Data: m.val[:]}
	return m
}

// at is slot i, in memory that the next call overwrites.
func (m *bigMap) at(i int) *Element {
	binary.BigEndian.PutUint32(m.key[0:], 10<<24|uint32(i/10))
	binary.NativeEndian.PutUint32(m.key[12:], uint32(i%10))
	binary.BigEndian.PutUint32(m.val[0:], 172<<24|uint32(i))
	return &m.e
}

func (m *bigMap) fill(b *Batch, n int) {
	for i := range n {
		b.Tag(i)
		b.AddElement(m.set, m.at(i))
	}
}

// fullBuild is the layout's table with n endpoint slots and n/10 Services.
func fullBuild(b *Batch, t TableRef, n int) *bigMap {
	b.NewTable(t, nil)
	for _, s := range layoutSets(t) {
		if s.Ref.Name == "eps" {
			s.Size = 1 << 20
		}
		b.NewSet(s)
	}
	for _, c := range layoutChains(t.Family) {
		b.NewChain(ChainSpec{Ref: t.Chain(c.name), Hook: c.hook})
	}
	for _, c := range layoutChains(t.Family) {
		for _, r := range c.rules {
			b.NewRule(RuleSpec{Chain: t.Chain(c.name), Exprs: r})
		}
	}
	m := newBigMap(t)
	m.fill(b, n)
	for i := range n / 10 {
		b.AddElement(t.Set("services"), &Element{Key: m.at(i * 10).Key[:12], Verdict: Goto("lb-4")})
	}
	return m
}

const many = 100_000

// TestManyElements commits 100 000 elements at once, refuses a batch as large for one bad element, and dumps them all.
func TestManyElements(t *testing.T) {
	k, ctx := ownNetns(t), context.Background()
	table := TableRef{IPv4, "fairlead"}
	b := &Batch{}
	m := fullBuild(b, table, many)
	g, err := k.Commit(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]bool, many)
	rows := 0
	err = k.Elements(ctx, m.set, func(e *Element) error {
		i := int(binary.BigEndian.Uint32(e.Key)&0xffffff)*10 + int(binary.NativeEndian.Uint32(e.Key[12:]))
		if seen[i] || binary.BigEndian.Uint32(e.Data) != 172<<24|uint32(i) {
			t.Fatalf("element %d: %x : %x", i, e.Key, e.Data)
		}
		seen[i] = true
		rows++
		return nil
	})
	if err != nil || rows != many {
		t.Fatal(rows, err)
	}

	const bad = 77_777
	b.Reset()
	b.Expect = g
	for i := range many {
		b.Tag(i)
		e := *m.at(i)
		if i == bad {
			e.Data = slotElement(0, "10.9.9.9").Data
		}
		b.AddElement(m.set, &e)
	}
	_, err = k.Commit(ctx, b)
	var be *BatchError
	if !errors.As(err, &be) || be.Errno != unix.EEXIST || !slices.Equal(be.Tags, []int{bad}) {
		t.Fatalf("%v", err)
	}
	if now, err := k.Generation(ctx); err != nil || now != g {
		t.Fatal(now, g, err)
	}
}

// TestEncodingDoesNotAllocate holds the promise that lets a batch carry 500 000 elements.
func TestEncodingDoesNotAllocate(t *testing.T) {
	m := newBigMap(TableRef{IPv4, "fairlead"})
	b := &Batch{}
	m.fill(b, 10_000)
	per := 2.0
	for try := 0; per > 1 && try < 20; try++ { // concurrent allocations of other goroutines count as well
		per = testing.AllocsPerRun(3, func() {
			b.Reset()
			m.fill(b, 10_000)
		})
	}
	if per > 1 {
		t.Errorf("%.0f allocations for 10 000 elements", per)
	}
	if n := b.Bytes() / 10_000; n > 60 {
		t.Errorf("%d bytes an element", n)
	}
}

// TestInterruptedDump changes the table while it is dumped, from within: the dump must not pass for whole.
func TestInterruptedDump(t *testing.T) {
	k, ctx := ownNetns(t), context.Background()
	writer := another(t)
	table := TableRef{IPv4, "fairlead"}
	b := &Batch{}
	m := fullBuild(b, table, 20_000)
	if _, err := k.Commit(ctx, b); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := k.Elements(ctx, m.set, func(*Element) error {
		if n++; n == 100 {
			b := &Batch{}
			b.DelElement(m.set, &Element{Key: m.at(19_999).Key})
			if _, err := writer.Commit(ctx, b); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if !errors.Is(err, ErrInterrupted) {
		t.Fatalf("%d rows, %v", n, err)
	}
}
