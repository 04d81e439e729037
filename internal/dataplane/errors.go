package dataplane

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// Error classes, besides InvalidError and RebuildError. Anything else that Apply
// or Load returns is transient: the engine tries again with a backoff. What such an
// Apply wanted may have been done all the same, in part or whole: before it tries
// again the engine asks Changed.
var (
	// ErrConflict: somebody else wrote since we last looked, or what we believe is
	// wrong; nothing was applied. Load, then apply the new difference.
	ErrConflict = errors.New("kernel state changed under us")
	// ErrInPart: with an InvalidError, that what comes before the refused object in the
	// batch has been written all the same. The engine loads before it writes again. With
	// ErrUnsupported, that another family has been written: an answer like any that was lost.
	ErrInPart = errors.New("written in part")
	// ErrInterrupted: a dump was not consistent; load again.
	ErrInterrupted = errors.New("dump interrupted by a concurrent change")
	// ErrUnsupported: this kernel or host cannot do it. From Probe it ends the
	// agent, from elsewhere it is transient: a security module can be told better.
	ErrUnsupported = errors.New("not supported here")
	// ErrNotOurs: something of our name exists that we did not make; we touch
	// nothing. Before the first Load has succeeded it ends the agent.
	ErrNotOurs = errors.New("exists and is not ours")
)

// InvalidError says that the kernel refused these objects, for what they are,
// and therefore the whole batch (but see ErrInPart). The engine puts their owners aside
// (quarantine) and goes on with the rest. An object that was to be deleted is named
// if something that stays leads to it: the engine keeps it, if it holds anything in
// quarantine. An error that is both an InvalidError
// and ErrConflict says that what we believe may be to blame (an object is there
// that should not be): the engine loads first, and puts aside what is refused again.
type InvalidError struct {
	Keys []Key // the objects to blame, never empty: a driver that is not told finds them out
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

// Unwrap returns the kernel's error.
func (e *InvalidError) Unwrap() error { return e.Err }

// RebuildError says that what these families hold cannot be repaired object by
// object, or that the batch does not fit into it: another layout, a declaration
// unlike ours, a set that is full. Nothing was applied. The engine answers with a
// Batch that rebuilds them.
type RebuildError struct {
	Families []model.Family
	Why      string // for the log and for metrics: few words, no numbers
}

// Error implements error.
func (e *RebuildError) Error() string {
	return fmt.Sprintf("%v must be made anew: %s", e.Families, e.Why)
}

// NothingDone reports whether an error of Apply is of a class that says so; after
// another the kernel may hold the batch, and only the answer was lost.
func NothingDone(err error) bool {
	var invalid *InvalidError
	var rebuild *RebuildError
	if errors.Is(err, ErrInPart) {
		return false
	}
	return errors.As(err, &invalid) || errors.As(err, &rebuild) || errors.Is(err, ErrConflict) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNotOurs)
}
