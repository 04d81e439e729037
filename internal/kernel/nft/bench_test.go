package nft

import (
	"context"
	"testing"
)

// BenchmarkFullBuild builds a table of 10 000 Services with ten endpoints each: 110 000 elements in one transaction.
func BenchmarkFullBuild(b *testing.B) {
	k, ctx := ownNetns(b), context.Background()
	table := TableRef{IPv4, "fairlead"}
	batch := &Batch{}
	for b.Loop() {
		batch.Reset()
		fullBuild(batch, table, many)
		if _, err := k.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		batch.Reset()
		batch.DelTable(table)
		if _, err := k.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(many+many/10), "elements/op")
}

// BenchmarkEncode measures the agent's own part of a full build, without the kernel's.
func BenchmarkEncode(b *testing.B) {
	batch := &Batch{}
	for b.Loop() {
		batch.Reset()
		fullBuild(batch, TableRef{IPv4, "fairlead"}, many)
	}
	b.SetBytes(int64(batch.Bytes()))
}

// BenchmarkReplaceSlot replaces one endpoint of 100 000, comparing the generation.
func BenchmarkReplaceSlot(b *testing.B) {
	k, ctx := ownNetns(b), context.Background()
	batch := &Batch{}
	m := fullBuild(batch, TableRef{IPv4, "fairlead"}, many)
	g, err := k.Commit(ctx, batch)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		batch.Expect = g
		batch.DelElement(m.set, &Element{Key: m.at(500).Key})
		batch.AddElement(m.set, m.at(500))
		if g, err = k.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDump reads 100 000 elements.
func BenchmarkDump(b *testing.B) {
	k, ctx := ownNetns(b), context.Background()
	batch := &Batch{}
	m := fullBuild(batch, TableRef{IPv4, "fairlead"}, many)
	if _, err := k.Commit(ctx, batch); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := k.Elements(ctx, m.set, func(*Element) error { n++; return nil }); err != nil || n != many {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkGeneration is what polling costs.
func BenchmarkGeneration(b *testing.B) {
	k, ctx := ownNetns(b), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Generation(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
