package ipvs

import (
	"context"
	"net/netip"
	"sync/atomic"
)

// Counter wraps a Kernel and counts the calls. Counts may be called from any goroutine.
type Counter struct {
	Kernel
	reads, writes atomic.Uint64
}

var _ Kernel = (*Counter)(nil)

// NewCounter wraps k.
func NewCounter(k Kernel) *Counter { return &Counter{Kernel: k} }

// Counts returns the numbers of lists and of changes so far.
func (c *Counter) Counts() (reads, writes uint64) { return c.reads.Load(), c.writes.Load() }

// All implements Kernel. It counts one list, and one more for each virtual server's real servers.
func (c *Counter) All(ctx context.Context, want Wanted, take func(*Virtual, []Real) error) error {
	c.reads.Add(1)
	return c.Kernel.All(ctx, want, func(v *Virtual, reals []Real) error {
		c.reads.Add(1)
		return take(v, reals)
	})
}

// Virtual implements Kernel.
func (c *Counter) Virtual(ctx context.Context, k VirtualKey) (Virtual, bool, error) {
	c.reads.Add(1)
	return c.Kernel.Virtual(ctx, k)
}

// Reals implements Kernel.
func (c *Counter) Reals(ctx context.Context, of VirtualKey) ([]Real, error) {
	c.reads.Add(1)
	return c.Kernel.Reals(ctx, of)
}

// PutVirtual implements Kernel.
func (c *Counter) PutVirtual(ctx context.Context, v Virtual) error {
	c.writes.Add(1)
	return c.Kernel.PutVirtual(ctx, v)
}

// PutReal implements Kernel.
func (c *Counter) PutReal(ctx context.Context, of VirtualKey, r Real) error {
	c.writes.Add(1)
	return c.Kernel.PutReal(ctx, of, r)
}

// DelVirtual implements Kernel.
func (c *Counter) DelVirtual(ctx context.Context, k VirtualKey) error {
	c.writes.Add(1)
	return c.Kernel.DelVirtual(ctx, k)
}

// DelReal implements Kernel.
func (c *Counter) DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error {
	c.writes.Add(1)
	return c.Kernel.DelReal(ctx, of, at)
}
