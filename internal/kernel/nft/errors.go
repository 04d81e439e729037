package nft

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrGeneration: another program wrote since Batch.Expect was read. Nothing was applied: read, compare, retry.
	ErrGeneration = errors.New("another program committed to nf_tables concurrently")
	// ErrInterrupted: a dump overlapped another program's commit. If that commit wrote nothing in the dumped table
	// (Watch reports that), the rows are complete nevertheless: the kernel continues by position within the table or set, and its hash
	// sets of a fixed size keep their order while they are not written. Otherwise dump again.
	ErrInterrupted = errors.New("dump interrupted by a commit")
	// ErrNoAnswer: the outcome of a commit is unknown because the kernel's reply was lost: read the kernel's state again.
	ErrNoAnswer = errors.New("the reply to a commit was lost")
)

// BatchError is the rejection of a whole transaction, with the reasons. It unwraps to the first errno.
type BatchError struct {
	Errno  unix.Errno // of the first failing operation
	Tags   []int      // distinct tags of the failing operations, in order
	Errors []OpError  // every rejected operation that the kernel reported
}

// OpError is one rejected operation.
type OpError struct {
	Errno unix.Errno
	Kind  OpKind
	Tags  []int  // one tag if the kernel named the element or the message holds one; otherwise all tags of the message
	Msg   string // the kernel's extended message, often empty
}

// Error implements error.
func (e *BatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit nftables batch: the kernel rejected %d operations", len(e.Errors))
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

// Unwrap returns the first errno, so that errors.Is(err, unix.EEXIST) works.
func (e *BatchError) Unwrap() error { return e.Errno }
