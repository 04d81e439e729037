package conntrack

import (
	"context"
	"slices"
	"sync"
)

// Fake is a Table in memory: flows in the order they were added. Like the
// kernel it deletes a flow only by its tuple, zone and ID together. It is safe
// for concurrent use, so that a test may add flows while the cleaner runs.
type Fake struct {
	mu    sync.Mutex
	flows []Flow
	id    uint32
}

var _ Table = (*Fake)(nil)

// Add adds a flow and assigns an ID to it.
func (f *Fake) Add(x Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id++
	x.ID = f.id
	f.flows = append(f.flows, x)
}

// All returns a copy of the table.
func (f *Fake) All() []Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.flows)
}

// Flows implements Table.
func (f *Fake) Flows(ctx context.Context, filter Filter, emit func(Flow)) error {
	for _, x := range f.All() {
		if filter.Matches(&x) {
			emit(x)
		}
	}
	return ctx.Err()
}

// Delete implements Table.
func (f *Fake) Delete(ctx context.Context, flows []Flow) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, x := range flows {
		if i := slices.Index(f.flows, x); i >= 0 {
			f.flows = slices.Delete(f.flows, i, i+1)
			n++
		}
	}
	return n, ctx.Err()
}

// Close implements Table.
func (f *Fake) Close() error { return nil }

// Counter wraps a Table, counts the calls and injects errors on demand.
type Counter struct {
	Table Table
	// Fail, if set, is called before each call ("flows", "delete"); the call returns
	// its error instead.
	Fail func(call string) error

	mu      sync.Mutex
	dumps   []Filter
	deletes int
}

var _ Table = (*Counter)(nil)

// Dumps returns the filters of all dumps so far.
func (c *Counter) Dumps() []Filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.dumps)
}

// Deletes returns the number of Delete calls so far.
func (c *Counter) Deletes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deletes
}

func (c *Counter) fail(call string) error {
	if c.Fail == nil {
		return nil
	}
	return c.Fail(call)
}

// Flows implements Table.
func (c *Counter) Flows(ctx context.Context, f Filter, emit func(Flow)) error {
	c.mu.Lock()
	c.dumps = append(c.dumps, f)
	c.mu.Unlock()
	if err := c.fail("flows"); err != nil {
		return err
	}
	return c.Table.Flows(ctx, f, emit)
}

// Delete implements Table.
func (c *Counter) Delete(ctx context.Context, flows []Flow) (int, error) {
	c.mu.Lock()
	c.deletes++
	c.mu.Unlock()
	if err := c.fail("delete"); err != nil {
		return 0, err
	}
	return c.Table.Delete(ctx, flows)
}

// Close implements Table.
func (c *Counter) Close() error { return c.Table.Close() }
