package nft

import (
	"context"
	"sync/atomic"
)

// Counts is a snapshot of a Counter.
type Counts struct {
	Reads      uint64 // Generation excluded
	Generation uint64 // Generation calls
	Commits    uint64
	Refused    uint64 // commits that returned an error
	Operations uint64 // in all commits; an element counts as one
	Elements   uint64 // element operations among them
	Bytes      uint64 // of all batches
	Rows       uint64 // elements that dumps returned
}

// Counter wraps a Kernel and counts the calls. Counts may be called from any goroutine.
type Counter struct {
	Kernel
	reads, generation, commits, refused, operations, elements, bytes, rows atomic.Uint64
}

var _ Kernel = (*Counter)(nil)

// NewCounter wraps k.
func NewCounter(k Kernel) *Counter { return &Counter{Kernel: k} }

// Counts returns the counts so far.
func (c *Counter) Counts() Counts {
	return Counts{
		Reads: c.reads.Load(), Generation: c.generation.Load(), Commits: c.commits.Load(), Refused: c.refused.Load(),
		Operations: c.operations.Load(), Elements: c.elements.Load(), Bytes: c.bytes.Load(), Rows: c.rows.Load(),
	}
}

// Commit implements Kernel.
func (c *Counter) Commit(ctx context.Context, b *Batch) (Generation, error) {
	c.commits.Add(1)
	c.operations.Add(uint64(b.Len()))
	c.elements.Add(uint64(b.Count(OpAddElement) + b.Count(OpDelElement)))
	c.bytes.Add(uint64(b.Bytes()))
	g, err := c.Kernel.Commit(ctx, b)
	if err != nil {
		c.refused.Add(1)
	}
	return g, err
}

// Generation implements Kernel.
func (c *Counter) Generation(ctx context.Context) (Generation, error) {
	c.generation.Add(1)
	return c.Kernel.Generation(ctx)
}

// Tables implements Kernel.
func (c *Counter) Tables(ctx context.Context) ([]Table, error) {
	c.reads.Add(1)
	return c.Kernel.Tables(ctx)
}

// Sets implements Kernel.
func (c *Counter) Sets(ctx context.Context, t TableRef) ([]Set, error) {
	c.reads.Add(1)
	return c.Kernel.Sets(ctx, t)
}

// Chains implements Kernel.
func (c *Counter) Chains(ctx context.Context, t TableRef) ([]Chain, error) {
	c.reads.Add(1)
	return c.Kernel.Chains(ctx, t)
}

// Rules implements Kernel.
func (c *Counter) Rules(ctx context.Context, t TableRef) ([]Rule, error) {
	c.reads.Add(1)
	return c.Kernel.Rules(ctx, t)
}

// Elements implements Kernel.
func (c *Counter) Elements(ctx context.Context, s SetRef, emit func(*Element) error) error {
	c.reads.Add(1)
	return c.Kernel.Elements(ctx, s, func(e *Element) error {
		c.rows.Add(1)
		return emit(e)
	})
}
