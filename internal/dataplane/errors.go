package dataplane

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// Error classes, in addition to InvalidError and RebuildError. Any other error of
// Apply or Load is transient: the engine retries with a backoff. The batch of such an
// Apply may have been applied, in part or whole: before the retry the engine calls
// Changed.
var (
	// ErrConflict: another program has written since the driver's last read, or the
	// recorded actual state is wrong (stale). Nothing was applied. The engine calls
	// Load, then applies the new difference.
	ErrConflict = errors.New("the kernel state changed concurrently")
	// ErrInPart: together with an InvalidError, the operations that precede the refused
	// object in the batch have been applied. The engine calls Load before it writes again.
	// Together with ErrUnsupported, another family has been written: the engine handles it
	// as a write whose answer was lost.
	ErrInPart = errors.New("partly applied")
	// ErrInterrupted: a dump was not consistent. The engine calls Load again.
	ErrInterrupted = errors.New("dump interrupted by a concurrent change")
	// ErrUnsupported: this kernel or host does not support or permit the operation.
	// If Probe returns it, the agent ends. If another method returns it, it is
	// transient, because the policy of a security module can be changed.
	ErrUnsupported = errors.New("not supported here")
	// ErrNotOurs: an object with a name that the driver uses exists, but is foreign:
	// Fairlead did not create it. The driver writes nothing. Before the first successful
	// Load this error ends the agent.
	ErrNotOurs = errors.New("exists and belongs to another program")
)

// InvalidError reports that the kernel rejected these objects because of their
// content, and therefore the whole batch (but see ErrInPart). The engine quarantines
// their owners and applies the rest. Keys include an object to be deleted if an
// object that stays refers to it: the engine keeps it if any Service is
// quarantined. If an error is both an InvalidError and ErrConflict, the cause may be
// a stale actual state (an object exists that should not): the engine calls Load
// first, and quarantines the owners of objects that are rejected again.
type InvalidError struct {
	Keys []Key // the rejected objects, never empty: if the kernel does not name them, the driver determines them
	Err  error
}

// Error implements error.
func (e *InvalidError) Error() string {
	names := make([]string, 0, len(e.Keys))
	for _, k := range e.Keys {
		names = append(names, k.String())
	}
	return fmt.Sprintf("kernel rejected %s: %v", strings.Join(names, ", "), e.Err)
}

// Unwrap returns the kernel's error.
func (e *InvalidError) Unwrap() error { return e.Err }

// RebuildError reports that the actual state of these families cannot be repaired
// object by object, or that the batch does not fit into it. Examples are another
// layout, a declaration that differs from the driver's, and a full set. Nothing was
// applied. The engine handles it with a Batch that rebuilds the families.
type RebuildError struct {
	Families []model.Family
	Why      string // for the log and for metrics: few words, no numbers
}

// Error implements error.
func (e *RebuildError) Error() string {
	return fmt.Sprintf("%v must be rebuilt: %s", e.Families, e.Why)
}

// NothingDone reports whether an error of Apply is of a class that guarantees that
// nothing was applied. After any other error the kernel may hold the batch, because
// only the answer may have been lost.
func NothingDone(err error) bool {
	var invalid *InvalidError
	var rebuild *RebuildError
	if errors.Is(err, ErrInPart) {
		return false
	}
	return errors.As(err, &invalid) || errors.As(err, &rebuild) || errors.Is(err, ErrConflict) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNotOurs)
}
