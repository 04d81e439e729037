package nft

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// answer collects the kernel's answer to one batch.
type answer struct {
	first, own, last uint32 // sequence numbers: of the batch's begin, of its first own message, of its last
	batch            *Batch
	gen              Generation
	acked            bool
	fatal            unix.Errno // of the batch as a whole
	errs             []OpError
}

// result returns the outcome of the batch. asked is the error of the request.
func (a *answer) result(asked error) error {
	switch {
	case len(a.errs) > 0: // even if some errors were lost: the batch is rejected
		return a.batchError()
	case a.fatal == unix.ERESTART:
		return ErrGeneration
	case a.fatal != 0:
		return &BatchError{Errno: a.fatal}
	case errors.Is(asked, netlink.ErrNoAnswer):
		if a.acked && a.gen != 0 {
			return nil
		}
		return fmt.Errorf("%w: %w", ErrNoAnswer, asked)
	case asked != nil:
		return fmt.Errorf("send nftables batch of %d operations: %w", a.batch.Len(), asked)
	}
	return nil
}

// take handles one message. It reports done after the acknowledgement of the last operation, or the rejection of the batch.
func (a *answer) take(msg netlink.Message) (done bool) {
	m := nlmsg{msg}
	switch {
	case m.isNft(unix.NFT_MSG_NEWGEN):
		a.gen = genOf(m)
	case m.Type != unix.NLMSG_ERROR:
	case m.Seq == a.first:
		a.fatal = m.Errno()
	default:
		if e := m.Errno(); e != 0 {
			a.errs = append(a.errs, a.opError(m, e))
		}
		a.acked = a.acked || m.Seq == a.last
	}
	return a.acked || a.fatal != 0
}

func (a *answer) opError(m nlmsg, e unix.Errno) OpError {
	x := m.ack()
	i := 0 // an error of the NEWTABLE that appendBegin adds is attributed to the first operation
	if m.Seq-a.first > a.own-a.first {
		i = int(m.Seq - a.own)
	}
	return OpError{Errno: e, Msg: x.msg, Kind: a.batch.msgs[i].kind, Tags: a.batch.tags(i, x.offset)}
}

func (a *answer) batchError() error {
	e := &BatchError{Errno: a.errs[0].Errno, Errors: a.errs}
	for _, o := range a.errs {
		for _, t := range o.Tags {
			if !slices.Contains(e.Tags, t) {
				e.Tags = append(e.Tags, t)
			}
		}
	}
	return e
}

// tags returns the tags of message i, or only the tag of the element at offset if offset is within the message's elements.
func (b *Batch) tags(i, offset int) []int {
	m := b.msgs[i]
	end := len(b.buf)
	if i+1 < len(b.msgs) {
		end = b.msgs[i+1].off
	}
	from := sort.Search(len(b.marks), func(j int) bool { return b.marks[j].off >= m.off })
	to := sort.Search(len(b.marks), func(j int) bool { return b.marks[j].off >= end })
	if m.list > 0 && m.off+offset >= m.list {
		at := sort.Search(to-from, func(j int) bool { return b.marks[from+j].off > m.off+offset }) + from - 1
		return []int{b.marks[at].tag}
	}
	var out []int
	for _, k := range b.marks[from:to] {
		if !slices.Contains(out, k.tag) {
			out = append(out, k.tag)
		}
	}
	return out
}
