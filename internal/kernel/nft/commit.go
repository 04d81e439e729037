package nft

import (
	"context"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Commit implements Kernel. It learns its own generation as follows: the kernel reports a commit's NEWGEN on the committing socket if
// the FIRST message carries NLM_F_ECHO (checked on 6.1, 6.12 and 6.18), and reports none if the batch changed nothing. So
// neither a guess (Expect + 1, wrong for a batch without effect) nor a racy second read is needed. Only the last message
// requests an acknowledgement: one per message overflows the receive buffer from about 240 on.
func (c *Conn) Commit(ctx context.Context, b *Batch) (Generation, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.closeList()
	if len(b.msgs) == 0 {
		return c.commitNothing(ctx, b.Expect)
	}
	head, before := b.appendBegin(c.head[:0])
	split := len(head)
	head = appendMsgHdr(head, batchEnd, unix.NLM_F_REQUEST)
	head = append(head, unix.AF_UNSPEC, 0, 0, nfnlSubsysNft)
	endMsg(head, split)
	c.head = head
	first := c.cmd.Reserve(before + len(b.msgs) + 1)
	own := first + uint32(before)
	last := b.seal(own)
	numberMsgs(head[:split], first)
	numberMsgs(head[split:], last+1)

	a := answer{first: first, own: own, last: last, batch: b}
	asked := c.cmd.Ask(netlink.Question{First: first, Last: last, Data: [][]byte{head[:split], b.buf, head[split:]}}, a.take)
	if err := a.result(asked); err != nil {
		return 0, err
	}
	if a.gen == 0 {
		return c.commitNothing(ctx, b.Expect)
	}
	return a.gen, nil
}

// commitNothing returns the result of a batch without effect.
func (c *Conn) commitNothing(ctx context.Context, expect Generation) (Generation, error) {
	g, err := c.Generation(ctx)
	if err == nil && expect != 0 && g != expect {
		err = ErrGeneration
	}
	return g, err
}

// appendBegin appends the begin of the batch, and for a batch that starts with elements an idempotent NEWTABLE that requests the
// echo: on the element list itself NLM_F_ECHO would echo every element. It returns the number of messages appended.
func (b *Batch) appendBegin(h []byte) ([]byte, int) {
	off := len(h)
	h = appendMsgHdr(h, batchBegin, unix.NLM_F_REQUEST)
	h = append(h, unix.AF_UNSPEC, 0, 0, nfnlSubsysNft)
	if b.Expect != 0 {
		h = appendU32(h, unix.NFNL_BATCH_GENID, uint32(b.Expect))
	}
	endMsg(h, off)
	m := b.msgs[0]
	switch m.kind {
	case OpAddElement, OpDelElement, OpFlushSet:
		off = len(h)
		h = appendMsgHdr(h, nfnlSubsysNft<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ECHO)
		body := b.buf[m.off+nlmsgHdrLen:]
		table := body[nfgenLen:][:align4(int(binary.NativeEndian.Uint16(body[nfgenLen:])))]
		// The table is attribute 1 of every message, and a NUL-terminated string in all of them.
		h = append(append(h, body[:nfgenLen]...), table...)
		endMsg(h, off)
		return h, 2
	}
	b.orFlag(0, unix.NLM_F_ECHO)
	return h, 1
}

func (b *Batch) orFlag(i int, f uint16) {
	off := b.msgs[i].off + 6
	binary.NativeEndian.PutUint16(b.buf[off:], binary.NativeEndian.Uint16(b.buf[off:])|f)
}

// seal numbers the messages from seq on and requests the last one's acknowledgement; it returns the last number.
func (b *Batch) seal(seq uint32) uint32 {
	for i, m := range b.msgs {
		binary.NativeEndian.PutUint32(b.buf[m.off+8:], seq+uint32(i))
	}
	b.orFlag(len(b.msgs)-1, unix.NLM_F_ACK)
	return seq + uint32(len(b.msgs)) - 1
}

// numberMsgs numbers the messages before and after a batch's own.
func numberMsgs(h []byte, seq uint32) {
	for ; len(h) > 0; seq++ {
		binary.NativeEndian.PutUint32(h[8:], seq)
		h = h[binary.NativeEndian.Uint32(h):]
	}
}
