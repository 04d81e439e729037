package nft

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

// answer collects what the kernel says about one batch.
type answer struct {
	first, own, last uint32 // sequence numbers: of the batch's begin, of its first own message, of its last
	batch            *Batch
	gen              Generation
	acked            bool
	fatal            unix.Errno // of the batch as a whole
	errs             []OpError
}

// read takes datagrams until the last message is answered; all of them are in the receive queue by now.
func (a *answer) read(s *sock) error {
	lost := false
	for !a.acked && a.fatal == 0 {
		b, err := s.recv()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost = true
			continue
		case errors.Is(err, unix.EAGAIN):
			lost = true
		case err != nil:
			return fmt.Errorf("read answer to nftables batch: %w", err)
		default:
			eachMsg(b, a.take)
			continue
		}
		break
	}
	switch {
	case len(a.errs) > 0:
		return a.batchError()
	case a.fatal == unix.ERESTART:
		return ErrGeneration
	case a.fatal != 0:
		return &BatchError{Errno: a.fatal}
	case !a.acked || lost && a.gen == 0:
		return ErrNoAnswer
	}
	return nil
}

func (a *answer) take(m nlmsg) bool {
	switch {
	case m.seq-a.first > a.last-a.first: // of another batch
	case m.isNft(unix.NFT_MSG_NEWGEN):
		a.gen = genOf(m)
	case m.typ != unix.NLMSG_ERROR:
	case m.seq == a.first:
		a.fatal = m.errno()
	default:
		if e := m.errno(); e != 0 {
			a.errs = append(a.errs, a.opError(m, e))
		}
		a.acked = a.acked || m.seq == a.last
	}
	return true
}

func (a *answer) opError(m nlmsg, e unix.Errno) OpError {
	x := m.ack()
	i := 0 // the NEWTABLE that we put in front stands for the first operation
	if m.seq-a.first > a.own-a.first {
		i = int(m.seq - a.own)
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

// tags are the tags of message i, or the one of the attribute at offset if that lies among its elements.
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
