package nftables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// vagueTags returns the candidates for the refused op if the kernel's error identifies
// only a message that carries several ops. It returns nil if every error identifies one op.
func vagueTags(err error) map[int]struct{} {
	var refused *nft.BatchError
	if !errors.As(err, &refused) {
		return nil
	}
	var out map[int]struct{}
	for _, e := range refused.Errors {
		if len(e.Tags) < 2 {
			continue
		}
		if out == nil {
			out = map[int]struct{}{}
		}
		for _, t := range e.Tags {
			out[t] = struct{}{}
		}
	}
	return out
}

// passing are errors that no object causes: lack of memory, missing permission, busy.
var passing = [...]unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR, unix.EBUSY, unix.EPERM, unix.EACCES}

// explain returns the error class of the contract for an error of the kernel.
func (d *Driver) explain(err error, ops []dataplane.Op) error {
	var refused *nft.BatchError
	if errors.Is(err, nft.ErrGeneration) {
		return fmt.Errorf("apply: %w", dataplane.ErrConflict)
	}
	if !errors.As(err, &refused) || len(refused.Errors) == 0 {
		return fmt.Errorf("apply %d differences: %w", len(ops), err)
	}
	if full := d.sizes.overflow(refused, ops); full != nil {
		return fmt.Errorf("apply: %w: %w", full, err)
	}
	return d.blame(refused, ops)
}

// blame returns an error that names the objects that caused a refusal.
func (d *Driver) blame(refused *nft.BatchError, ops []dataplane.Op) error {
	invalid := dataplane.InvalidError{Err: refused}
	var missing, inUse []dataplane.Key
	wrong, perhaps := false, false
	for i := range refused.Errors {
		e := &refused.Errors[i]
		switch {
		case isInUse(e):
			inUse = appendKeys(inUse, e.Tags, ops)
		case slices.Contains(passing[:], e.Errno), e.Errno == unix.EOPNOTSUPP && e.Kind != nft.OpAddElement:
			return fmt.Errorf("apply %d differences: %w", len(ops), refused)
		case beliefIsWrong(e, ops):
			wrong = true
			missing = appendKeys(missing, lacking(e, ops), ops)
		default:
			perhaps = perhaps || e.Errno == unix.EEXIST
			invalid.Keys = appendKeys(invalid.Keys, e.Tags, ops)
		}
	}
	switch {
	case len(invalid.Keys) > 0 && perhaps: // it may overlap a range that is not in the synced state
		return errors.Join(&invalid, dataplane.ErrConflict)
	case len(invalid.Keys) > 0:
		return &invalid
	case len(inUse) > 0: // an object that is kept refers to it
		return errors.Join(&dataplane.InvalidError{Keys: inUse, Err: refused}, dataplane.ErrConflict)
	case len(missing) > 0: // they refer to an object that does not exist
		return errors.Join(&dataplane.InvalidError{Keys: missing, Err: refused}, dataplane.ErrConflict)
	case wrong: // the synced state was stale, although the generation is the expected one
		return fmt.Errorf("apply: %w: %w", dataplane.ErrConflict, refused)
	}
	return fmt.Errorf("apply %d differences: %w", len(ops), refused)
}

// isInUse reports whether a deletion failed because another object refers to the chain or set.
func isInUse(e *nft.OpError) bool {
	return e.Errno == unix.EBUSY && (e.Kind == nft.OpDelChain || e.Kind == nft.OpDelSet)
}

// lacking returns the ops that failed to create an object because the object that it
// refers to does not exist.
func lacking(e *nft.OpError, ops []dataplane.Op) (out []int) {
	for _, t := range e.Tags {
		if e.Errno == unix.ENOENT && t >= 0 && t < len(ops) && ops[t].Want != "" {
			out = append(out, t)
		}
	}
	return out
}

// appendKeys appends the keys of the tagged ops, each once.
func appendKeys(keys []dataplane.Key, tags []int, ops []dataplane.Op) []dataplane.Key {
	for _, t := range tags {
		if t >= 0 && t < len(ops) && !slices.Contains(keys, ops[t].Key) {
			keys = append(keys, ops[t].Key)
		}
	}
	return keys
}

// beliefIsWrong reports whether the synced state is stale: an object that it contains
// does not exist, or a hash set has an element of that key with other data. No object
// causes such a refusal. A set of ranges reports EEXIST also for ranges that overlap;
// that is an error of the object, so EEXIST of such a set does not count.
func beliefIsWrong(e *nft.OpError, ops []dataplane.Op) bool {
	switch e.Errno {
	case unix.ENOENT:
		return true
	case unix.EEXIST:
		return len(e.Tags) == 0 || !slices.ContainsFunc(e.Tags, func(t int) bool {
			if t < 0 || t >= len(ops) {
				return false
			}
			def := defOf(ops[t].Key.Kind)
			return def != nil && def.firstSize() == 0
		})
	}
	return false
}
