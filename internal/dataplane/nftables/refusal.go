package nftables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// vagueTags returns the ops among which a refused one is, if the kernel named only the
// message that carries them all; nil if it was more exact.
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

// passing are errors that say nothing about any object: no memory, no right, busy.
var passing = [...]unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR, unix.EBUSY, unix.EPERM, unix.EACCES}

// explain turns what the kernel said into the error classes of the contract.
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

// blame finds who is at fault for what the kernel refused.
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
	case len(invalid.Keys) > 0 && perhaps: // a range that we do not know of may be in the way
		return errors.Join(&invalid, dataplane.ErrConflict)
	case len(invalid.Keys) > 0:
		return &invalid
	case len(inUse) > 0: // something that stays leads there
		return errors.Join(&dataplane.InvalidError{Keys: inUse, Err: refused}, dataplane.ErrConflict)
	case len(missing) > 0: // what these lead to is not there
		return errors.Join(&dataplane.InvalidError{Keys: missing, Err: refused}, dataplane.ErrConflict)
	case wrong: // nobody wrote since we looked
		return fmt.Errorf("apply: %w: %w", dataplane.ErrConflict, refused)
	}
	return fmt.Errorf("apply %d differences: %w", len(ops), refused)
}

// isInUse reports that something leads to what was to be deleted.
func isInUse(e *nft.OpError) bool {
	return e.Errno == unix.EBUSY && (e.Kind == nft.OpDelChain || e.Kind == nft.OpDelSet)
}

// lacking returns those ops that were to make something that leads to nothing.
func lacking(e *nft.OpError, ops []dataplane.Op) (out []int) {
	for _, t := range e.Tags {
		if e.Errno == unix.ENOENT && t >= 0 && t < len(ops) && ops[t].Want != "" {
			out = append(out, t)
		}
	}
	return out
}

func appendKeys(keys []dataplane.Key, tags []int, ops []dataplane.Op) []dataplane.Key {
	for _, t := range tags {
		if t >= 0 && t < len(ops) && !slices.Contains(keys, ops[t].Key) {
			keys = append(keys, ops[t].Key)
		}
	}
	return keys
}

// beliefIsWrong reports the refusals that no object can be blamed for: what should be
// there is not, or a hash set holds under a key what we did not put there. (A set of
// ranges says EEXIST also of ranges that overlap, which are the object's fault.)
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
