package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A dump in more than one datagram goes on in the next one at the place in the list where it had been, also where the list grew or
// shrank before that place meanwhile. The kernel says so only if the generation moved. But a commit to nf_tables puts in
// what is new before that, and takes out what it deletes after that (nf_tables_commit). So in what one generation has,
// 54 of a chain's 150 rules were seen to be missing, and others to be there twice. It is whole if a Settle came between the
// look at the generation and the dump, and another between the dump and the look that finds the generation unmoved. Only a
// commit that the kernel refused while the dump went on is not seen so.

// Settle waits until no commit to nf_tables is at work that had begun.
func (c *Conn) Settle() error {
	// An empty batch changes nothing, not even the generation. It waits for the turn to commit, which a commit has until
	// its end (nf_tables_valid_genid).
	b := batchMark(nil, nfnlBatchBegin, unix.NFNL_SUBSYS_NFTABLES)
	b = batchMark(b, nfnlBatchEnd, 0)
	return c.Tell([][]byte{b})
}

// What golang.org/x/sys/unix lacks of nfnetlink.h.
const (
	nfnlBatchBegin = unix.NLMSG_MIN_TYPE
	nfnlBatchEnd   = unix.NLMSG_MIN_TYPE + 1
	nfgenBytes     = 4 // of struct nfgenmsg
)

// batchMark appends a message that begins or ends a batch for a subsystem.
func batchMark(b []byte, kind, subsystem uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, HeaderLen+nfgenBytes)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // no number, from nobody in particular
	b = append(b, unix.NFPROTO_UNSPEC, 0)
	return binary.BigEndian.AppendUint16(b, subsystem)
}
