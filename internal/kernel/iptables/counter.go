package iptables

import (
	"context"
	"sync/atomic"
)

// Counts is a snapshot of a Counter.
type Counts struct {
	Reads    uint64 // Save, SaveAll, Read and List
	Stamps   uint64
	Restores uint64
	Failed   uint64 // Restores that returned an error
	Bytes    uint64 // of input
}

// Counter wraps a Kernel and counts the calls. Counts may be called from
// any goroutine.
type Counter struct {
	Kernel
	reads, stamps, restores, failed, bytes atomic.Uint64
}

var _ Kernel = (*Counter)(nil)

// NewCounter wraps k.
func NewCounter(k Kernel) *Counter { return &Counter{Kernel: k} }

// Counts returns the counts so far.
func (c *Counter) Counts() Counts {
	return Counts{Reads: c.reads.Load(), Stamps: c.stamps.Load(), Restores: c.restores.Load(), Failed: c.failed.Load(), Bytes: c.bytes.Load()}
}

// Restore implements Kernel.
func (c *Counter) Restore(ctx context.Context, r Restore) (Stamp, error) {
	c.restores.Add(1)
	c.bytes.Add(uint64(len(r.Input)))
	s, err := c.Kernel.Restore(ctx, r)
	if err != nil {
		c.failed.Add(1)
	}
	return s, err
}

// Save implements Kernel.
func (c *Counter) Save(ctx context.Context, f Family, table string, emit func([]byte) error) error {
	c.reads.Add(1)
	return c.Kernel.Save(ctx, f, table, emit)
}

// SaveAll implements Kernel.
func (c *Counter) SaveAll(ctx context.Context, f Family, tables []string, emit func(string, []byte) error) error {
	c.reads.Add(1)
	return c.Kernel.SaveAll(ctx, f, tables, emit)
}

// Read implements Kernel.
func (c *Counter) Read(ctx context.Context, r Reading, emit func([]byte) error) error {
	c.reads.Add(1)
	return c.Kernel.Read(ctx, r, emit)
}

// List implements Kernel.
func (c *Counter) List(ctx context.Context, f Family, table, chain string) ([]string, error) {
	c.reads.Add(1)
	return c.Kernel.List(ctx, f, table, chain)
}

// Stamp implements Kernel.
func (c *Counter) Stamp(ctx context.Context) (Stamp, error) {
	c.stamps.Add(1)
	return c.Kernel.Stamp(ctx)
}
