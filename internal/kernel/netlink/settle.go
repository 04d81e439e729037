package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A dump in more than one datagram continues in the next one at the same index of the list, even if the list grew or
// shrank before that index in the meantime. The kernel reports that only if the generation changed. But a commit to nf_tables adds
// new objects before the generation changes, and removes deleted ones after that (nf_tables_commit). So dumps of one generation
// were seen to lack 54 of a chain's 150 rules, and to contain others twice. A dump is complete if one Settle ran between the
// first read of the generation and the dump, and another between the dump and the read that finds the generation unchanged. The
// one undetected case is a commit that the kernel rejected during the dump.

// Settle waits until every commit to nf_tables that had begun has ended.
func (c *Conn) Settle() error {
	// An empty batch changes nothing, not even the generation. It waits for the commit lock, which a commit holds until
	// its end (nf_tables_valid_genid).
	b := batchMark(nil, nfnlBatchBegin, unix.NFNL_SUBSYS_NFTABLES)
	b = batchMark(b, nfnlBatchEnd, 0)
	return c.Tell([][]byte{b})
}

// Constants of nfnetlink.h that golang.org/x/sys/unix lacks.
const (
	nfnlBatchBegin = unix.NLMSG_MIN_TYPE
	nfnlBatchEnd   = unix.NLMSG_MIN_TYPE + 1
	nfgenBytes     = 4 // size of struct nfgenmsg
)

// batchMark appends a message that begins or ends a batch for a subsystem.
func batchMark(b []byte, kind, subsystem uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, HeaderLen+nfgenBytes)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number and port id 0
	b = append(b, unix.NFPROTO_UNSPEC, 0)
	return binary.BigEndian.AppendUint16(b, subsystem)
}
