package dataplane

import (
	"errors"
	"fmt"
	"strings"
)

// Error classes. Anything else that Apply or Load returns is transient: the
// engine tries again with a backoff. What such an Apply wanted may have been done
// all the same, in part or whole: before it tries again the engine asks Changed.
var (
	// ErrConflict: somebody else wrote since we last looked; nothing was
	// applied. Load, then apply the new difference.
	ErrConflict = errors.New("kernel state changed under us")
	// ErrTooSmall goes with ErrConflict: nobody else wrote, but what we made has
	// no room for this batch. The Load that follows reports a root to be replaced.
	ErrTooSmall = errors.New("the table must be made larger")
	// ErrInterrupted: a dump was not consistent; load again.
	ErrInterrupted = errors.New("dump interrupted by a concurrent change")
	// ErrUnsupported: this kernel or host cannot do it; no retry helps.
	ErrUnsupported = errors.New("not supported here")
	// ErrNotOurs: something of our name exists that we did not make; we touch
	// nothing.
	ErrNotOurs = errors.New("exists and is not ours")
)

// InvalidError says that the kernel refused these objects, for what they are,
// and therefore the whole batch. The engine puts their owners aside
// (quarantine) and goes on with the rest.
type InvalidError struct {
	Keys []Key // objects to blame; empty if the kernel did not say which
	Err  error
}

// Error implements error.
func (e *InvalidError) Error() string {
	names := make([]string, 0, len(e.Keys))
	for _, k := range e.Keys {
		names = append(names, k.String())
	}
	return fmt.Sprintf("kernel refused %s: %v", strings.Join(names, ", "), e.Err)
}

// Unwrap gives the kernel's error.
func (e *InvalidError) Unwrap() error { return e.Err }

// NothingDone tells whether an error of Apply is of a class that says so; after
// another the kernel may hold the batch, and only the answer was lost.
func NothingDone(err error) bool {
	var invalid *InvalidError
	return errors.As(err, &invalid) || errors.Is(err, ErrConflict) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNotOurs)
}
