package nft

import (
	"context"
	"math/rand/v2"
)

// Fault is an error to inject into one call.
type Fault struct {
	Err   error
	After bool // commits only: apply the batch, then return Err
}

// Faulty wraps a Kernel and injects errors. A nil function never fails.
type Faulty struct {
	Kernel
	OnCommit func(*Batch) Fault        // called before each commit; a zero Fault injects nothing
	OnRead   func(method string) error // called before each other call but Watch, with the method's name
}

var _ Kernel = (*Faulty)(nil)

// RandomCommits returns a function that fails commits with probability p, with faults drawn from the list.
func RandomCommits(r *rand.Rand, p float64, faults ...Fault) func(*Batch) Fault {
	return func(*Batch) Fault {
		if r.Float64() >= p {
			return Fault{}
		}
		return faults[r.IntN(len(faults))]
	}
}

// Commit implements Kernel.
func (f *Faulty) Commit(ctx context.Context, b *Batch) (Generation, error) {
	var fault Fault
	if f.OnCommit != nil {
		fault = f.OnCommit(b)
	}
	if fault.Err != nil && !fault.After {
		return 0, fault.Err
	}
	g, err := f.Kernel.Commit(ctx, b)
	if err == nil && fault.Err != nil {
		return 0, fault.Err
	}
	return g, err
}

func (f *Faulty) read(method string) error {
	if f.OnRead == nil {
		return nil
	}
	return f.OnRead(method)
}

// Generation implements Kernel.
func (f *Faulty) Generation(ctx context.Context) (Generation, error) {
	if err := f.read("Generation"); err != nil {
		return 0, err
	}
	return f.Kernel.Generation(ctx)
}

// Tables implements Kernel.
func (f *Faulty) Tables(ctx context.Context) ([]Table, error) {
	if err := f.read("Tables"); err != nil {
		return nil, err
	}
	return f.Kernel.Tables(ctx)
}

// Sets implements Kernel.
func (f *Faulty) Sets(ctx context.Context, t TableRef) ([]Set, error) {
	if err := f.read("Sets"); err != nil {
		return nil, err
	}
	return f.Kernel.Sets(ctx, t)
}

// Chains implements Kernel.
func (f *Faulty) Chains(ctx context.Context, t TableRef) ([]Chain, error) {
	if err := f.read("Chains"); err != nil {
		return nil, err
	}
	return f.Kernel.Chains(ctx, t)
}

// Rules implements Kernel.
func (f *Faulty) Rules(ctx context.Context, t TableRef) ([]Rule, error) {
	if err := f.read("Rules"); err != nil {
		return nil, err
	}
	return f.Kernel.Rules(ctx, t)
}

// Elements implements Kernel.
func (f *Faulty) Elements(ctx context.Context, s SetRef, emit func(*Element) error) error {
	if err := f.read("Elements"); err != nil {
		return err
	}
	return f.Kernel.Elements(ctx, s, emit)
}
