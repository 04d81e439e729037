package nfacct

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Fake is a Table in memory. It is safe for concurrent use.
type Fake struct {
	mu     sync.Mutex
	counts map[string]Count
	inUse  map[string]bool
}

var _ Table = (*Fake)(nil)

// NewFake returns an empty Fake.
func NewFake() *Fake { return &Fake{counts: map[string]Count{}, inUse: map[string]bool{}} }

// Count adds packets to a counter, as a rule does.
func (f *Fake) Count(name string, packets, bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.counts[name]
	f.counts[name] = Count{name, x.Packets + packets, x.Bytes + bytes}
}

// Use sets whether a rule uses a counter, which then cannot be deleted.
func (f *Fake) Use(name string, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inUse[name] = yes
}

// Ensure implements Table.
func (f *Fake) Ensure(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("create nfacct counter %s: %w", name, err)
	}
	f.Count(name, 0, 0)
	return nil
}

// Read implements Table.
func (f *Fake) Read(name string) (Count, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, ok := f.counts[name]
	if !ok {
		return x, fmt.Errorf("read nfacct counter %s: %w", name, ErrNotFound)
	}
	return x, nil
}

// Delete implements Table.
func (f *Fake) Delete(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := checkName(name); err != nil {
		return fmt.Errorf("delete nfacct counter %s: %w", name, err)
	}
	if f.inUse[name] {
		return fmt.Errorf("delete nfacct counter %s: %w", name, ErrInUse)
	}
	delete(f.counts, name)
	return nil
}

// List implements Table.
func (f *Fake) List() ([]Count, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.counts)), nil
}

// Close implements Table.
func (f *Fake) Close() error { return nil }

// Counter wraps a Table, counts the calls and injects errors on demand.
type Counter struct {
	Table
	// Fail, if set, is called before each call ("ensure", "read", "delete", "list");
	// the call returns its error instead.
	Fail func(call string) error

	mu    sync.Mutex
	calls map[string]int
}

var _ Table = (*Counter)(nil)

// Calls returns the number of calls of each method so far.
func (c *Counter) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

func (c *Counter) called(call string) error {
	c.mu.Lock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[call]++
	c.mu.Unlock()
	if c.Fail == nil {
		return nil
	}
	return c.Fail(call)
}

// Ensure implements Table.
func (c *Counter) Ensure(name string) error {
	if err := c.called("ensure"); err != nil {
		return err
	}
	return c.Table.Ensure(name)
}

// Read implements Table.
func (c *Counter) Read(name string) (Count, error) {
	if err := c.called("read"); err != nil {
		return Count{}, err
	}
	return c.Table.Read(name)
}

// Delete implements Table.
func (c *Counter) Delete(name string) error {
	if err := c.called("delete"); err != nil {
		return err
	}
	return c.Table.Delete(name)
}

// List implements Table.
func (c *Counter) List() ([]Count, error) {
	if err := c.called("list"); err != nil {
		return nil, err
	}
	return c.Table.List()
}
