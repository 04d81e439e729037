package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrGeneration says that somebody else wrote since Batch.Expect was read. Nothing was applied: read, compare, retry.
	ErrGeneration = errors.New("rule set generation moved")
	// ErrInterrupted says that a dump overlapped a commit of somebody. If that commit did nothing in the table that was dumped
	// (Watch tells), the rows are complete all the same: the kernel goes on by position within the table or set, and its hash
	// sets of a fixed size keep their order while they are not written. Else dump again.
	ErrInterrupted = errors.New("dump interrupted by a commit")
	// ErrNoAnswer says that a commit's fate is unknown because the kernel's answer was lost: read the kernel again.
	ErrNoAnswer = errors.New("commit answer lost")
)

// BatchError is a transaction that the kernel refused as a whole, with what it disliked. It unwraps to the first errno.
type BatchError struct {
	Errno  unix.Errno // of the first failing operation
	Tags   []int      // distinct tags of the failing operations, in order
	Errors []OpError  // every refusal that the kernel reported
}

// OpError is one refused operation.
type OpError struct {
	Errno unix.Errno
	Kind  OpKind
	Tags  []int  // one tag if the kernel named the element or the message holds one; else all that the message carries
	Msg   string // the kernel's extended message, often empty
}

// Error implements error.
func (e *BatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit nftables batch: %d operations refused", len(e.Errors))
	for i, o := range e.Errors {
		if i == 3 {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; %s tags %v: %v", o.Kind, o.Tags, o.Errno)
		if o.Msg != "" {
			fmt.Fprintf(&b, " (%s)", o.Msg)
		}
	}
	return b.String()
}

// Unwrap makes errors.Is(err, unix.EEXIST) work.
func (e *BatchError) Unwrap() error { return e.Errno }
