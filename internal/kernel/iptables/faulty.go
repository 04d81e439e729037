package iptables

import (
	"context"
	"math/rand/v2"
	"sync"
)

// Fault is an error to inject into one Restore.
type Fault struct {
	Err   error
	After bool // write, then return Err
}

// Faulty wraps a Kernel and injects errors. A nil function never fails.
type Faulty struct {
	Kernel
	OnRestore func(Restore) Fault            // called before each Restore; a zero Fault injects nothing
	OnSave    func(f Family, t string) error // called before each Save and each Read
	asking    sync.Mutex                     // serializes the calls of OnSave by Reads, which come from several goroutines
}

var _ Kernel = (*Faulty)(nil)

// RandomRestores returns a function that fails Restores with probability p, with faults drawn from the list.
func RandomRestores(r *rand.Rand, p float64, faults ...Fault) func(Restore) Fault {
	return func(Restore) Fault {
		if r.Float64() >= p {
			return Fault{}
		}
		return faults[r.IntN(len(faults))]
	}
}

// Restore implements Kernel.
func (f *Faulty) Restore(ctx context.Context, r Restore) (Stamp, error) {
	var fault Fault
	if f.OnRestore != nil {
		fault = f.OnRestore(r)
	}
	if fault.Err != nil && !fault.After {
		return Stamp{}, fault.Err
	}
	s, err := f.Kernel.Restore(ctx, r)
	if err == nil && fault.Err != nil {
		return Stamp{}, fault.Err
	}
	return s, err
}

// SaveAll implements Kernel.
func (f *Faulty) SaveAll(ctx context.Context, fam Family, tables []string, emit func(string, []byte) error) error {
	if f.OnSave != nil {
		for _, t := range tables {
			if err := f.OnSave(fam, t); err != nil {
				return err
			}
			if f.OnSave == nil { // the fault was for one table only
				break
			}
		}
	}
	return f.Kernel.SaveAll(ctx, fam, tables, emit)
}

// Save implements Kernel.
func (f *Faulty) Save(ctx context.Context, fam Family, table string, emit func([]byte) error) error {
	if f.OnSave != nil {
		if err := f.OnSave(fam, table); err != nil {
			return err
		}
	}
	return f.Kernel.Save(ctx, fam, table, emit)
}

// Read implements Kernel.
func (f *Faulty) Read(ctx context.Context, r Reading, emit func([]byte) error) error {
	if err := f.ask(r); err != nil {
		return err
	}
	return f.Kernel.Read(ctx, r, emit)
}

func (f *Faulty) ask(r Reading) error {
	f.asking.Lock()
	defer f.asking.Unlock()
	if f.OnSave == nil {
		return nil
	}
	return f.OnSave(r.Family, r.Table)
}
