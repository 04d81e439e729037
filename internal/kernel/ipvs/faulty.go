package ipvs

import (
	"context"
	"net/netip"
)

// Fault is an error to inject into one call.
type Fault struct {
	Err   error
	After bool // apply the change, then return Err
}

// Faulty wraps a Kernel and injects errors into changes. A nil function never fails.
type Faulty struct {
	Kernel
	OnWrite func() Fault // called before each change; a zero Fault injects nothing
}

var _ Kernel = (*Faulty)(nil)

func (f *Faulty) write(do func() error) error {
	var fault Fault
	if f.OnWrite != nil {
		fault = f.OnWrite()
	}
	if fault.Err != nil && !fault.After {
		return fault.Err
	}
	if err := do(); err != nil {
		return err
	}
	return fault.Err
}

// PutVirtual implements Kernel.
func (f *Faulty) PutVirtual(ctx context.Context, v Virtual) error {
	return f.write(func() error { return f.Kernel.PutVirtual(ctx, v) })
}

// PutReal implements Kernel.
func (f *Faulty) PutReal(ctx context.Context, of VirtualKey, r Real) error {
	return f.write(func() error { return f.Kernel.PutReal(ctx, of, r) })
}

// DelVirtual implements Kernel.
func (f *Faulty) DelVirtual(ctx context.Context, k VirtualKey) error {
	return f.write(func() error { return f.Kernel.DelVirtual(ctx, k) })
}

// DelReal implements Kernel.
func (f *Faulty) DelReal(ctx context.Context, of VirtualKey, at netip.AddrPort) error {
	return f.write(func() error { return f.Kernel.DelReal(ctx, of, at) })
}
