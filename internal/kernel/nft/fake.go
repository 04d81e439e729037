package nft

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Fake is a Kernel in memory. It executes the bytes of a batch, so the batches that it accepts were encoded for the kernel, and
// rejects what the kernel rejects: other data for an existing key (EEXIST), deletes of missing objects (ENOENT) or of objects in use
// (EBUSY), rules and elements that name missing chains or sets (ENOENT), a full set (ENFILE), overlapping ranges of a
// concatenation (EEXIST), a stale generation. It does not process packets: dynamic sets stay as written and nothing expires. It
// is safe for concurrent use; a test commits as another program to its [Fake.Neighbour].
type Fake struct {
	mu       sync.Mutex
	gen      Generation
	handle   uint64
	tables   map[TableRef]*fakeTable
	watchers map[*fakeWatcher]bool
	devices  map[string]bool // nil: any

	// FixedSizes makes the Fake keep the size of an existing set, as kernels before 6.5 do.
	FixedSizes bool
	// Vague makes the Fake name the message of a rejected element, not the element, as old kernels do.
	Vague bool
}

var _ Kernel = (*Fake)(nil)

type fakeTable struct {
	row    Table
	sets   map[string]*fakeSet
	chains map[string]*fakeChain
	flows  map[string]*fakeFlow
}

type fakeSet struct {
	row   Set
	elems map[string]Element // by identity of the key
	refs  int                // rules that use it
}

type fakeChain struct {
	row   Chain
	refs  int // jumps of rules and verdicts of elements
	rules []*fakeRule
}

type fakeRule struct {
	row    Rule
	chains []*fakeChain // targets of its jumps
	sets   []*fakeSet   // sets that it looks up
	flows  []*fakeFlow  // flowtables that it offloads to
}

// NewFake returns an empty Fake at generation 1.
func NewFake() *Fake {
	return &Fake{gen: 1, tables: map[TableRef]*fakeTable{}, watchers: map[*fakeWatcher]bool{}}
}

// Generation implements Kernel.
func (f *Fake) Generation(ctx context.Context) (Generation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gen, ctx.Err()
}

// Tables implements Kernel.
func (f *Fake) Tables(ctx context.Context) ([]Table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Table
	for _, t := range f.tables {
		row := t.row
		row.Use = uint32(len(t.sets) + len(t.chains) + len(t.flows))
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Table) int { return int(a.Handle) - int(b.Handle) })
	return out, ctx.Err()
}

// Sets implements Kernel.
func (f *Fake) Sets(ctx context.Context, t TableRef) ([]Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Set
	if table := f.tables[t]; table != nil {
		for _, s := range table.sets {
			out = append(out, s.row)
		}
	}
	slices.SortFunc(out, func(a, b Set) int { return int(a.Handle) - int(b.Handle) })
	return out, ctx.Err()
}

// Chains implements Kernel.
func (f *Fake) Chains(ctx context.Context, t TableRef) ([]Chain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Chain
	for _, c := range f.sortedChains(t) {
		row := c.row
		row.Use = uint32(c.refs + len(c.rules))
		out = append(out, row)
	}
	return out, ctx.Err()
}

func (f *Fake) sortedChains(t TableRef) []*fakeChain {
	table := f.tables[t]
	if table == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(table.chains), func(a, b *fakeChain) int { return int(a.row.Handle) - int(b.row.Handle) })
}

// Rules implements Kernel.
func (f *Fake) Rules(ctx context.Context, t TableRef) ([]Rule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Rule
	for _, c := range f.sortedChains(t) {
		for _, r := range c.rules {
			out = append(out, r.row)
		}
	}
	return out, ctx.Err()
}

// Elements implements Kernel. emit runs on a copy: it may use the Fake.
func (f *Fake) Elements(ctx context.Context, s SetRef, emit func(*Element) error) error {
	elems, err := f.elements(s)
	if err != nil {
		return fmt.Errorf("dump elements of set %s: %w", s, err)
	}
	for i := range elems {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := emit(&elems[i]); err != nil {
			return fmt.Errorf("dump elements of set %s: %w", s, err)
		}
	}
	return nil
}

// elements returns the elements sorted by key: not in the order of their insertion, as from the kernel, but deterministic.
func (f *Fake) elements(s SetRef) ([]Element, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := f.set(s)
	if set == nil {
		return nil, unix.ENOENT
	}
	return slices.SortedFunc(maps.Values(set.elems), func(a, b Element) int {
		return strings.Compare(identity(&a), identity(&b))
	}), nil
}

func (f *Fake) set(s SetRef) *fakeSet {
	if t := f.tables[s.Table]; t != nil {
		return t.sets[s.Name]
	}
	return nil
}

// identity returns a string that is equal for two elements if a set treats them as the same.
func identity(e *Element) string {
	var b strings.Builder
	b.Write(e.Key)
	b.Write(e.KeyEnd)
	b.WriteByte(byte(e.Flags))
	return b.String()
}

func sameValue(a, b *Element) bool { return a.Verdict == b.Verdict && bytes.Equal(a.Data, b.Data) }
