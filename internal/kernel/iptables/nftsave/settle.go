package nftsave

import (
	"context"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// A commit makes its generation the present one first, and takes out what it deletes after
// that (nf_tables_commit). A dump in more than one datagram goes on in the next one at the
// place in the list where it had been, also where what stood before it was taken out
// meanwhile. If both are of the new generation, the kernel does not say that the dump was
// interrupted, and some rules are missing from it: a chain of 150 rules was seen to have 96.
//
// Nor need the second datagram have any rules: a chain of 150 was seen to have 97, all in
// one. So a dump counts only if no commit was at work since before it began: what is listed
// is of the generation that it was before settle waited for the commit that might have been
// at work then.

// settle waits until all of the present generation is in place.
func (d *dumper) settle(ctx context.Context) (err error) {
	if d.settled, err = d.generation(ctx); err != nil {
		return err
	}
	// An empty batch changes nothing, not even the generation. It waits for the turn to
	// commit, which a commit has until its end (nf_tables_valid_genid).
	b := batchMark(nil, nfnlBatchBegin, unix.NFNL_SUBSYS_NFTABLES)
	b = batchMark(b, nfnlBatchEnd, 0)
	return d.conn.Tell([][]byte{b})
}

// What golang.org/x/sys/unix lacks of nfnetlink.h.
const (
	nfnlBatchBegin = unix.NLMSG_MIN_TYPE
	nfnlBatchEnd   = unix.NLMSG_MIN_TYPE + 1
)

// batchMark appends a message that begins or ends a batch for a subsystem.
func batchMark(b []byte, kind, subsystem uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, netlink.HeaderLen+generic)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // no number, from nobody in particular
	b = append(b, unix.NFPROTO_UNSPEC, 0)
	return binary.BigEndian.AppendUint16(b, subsystem)
}
