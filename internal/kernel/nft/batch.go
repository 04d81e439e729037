package nft

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// OpKind is the kind of an operation of a batch.
type OpKind uint8

// Operation kinds.
const (
	OpNewTable OpKind = iota
	OpDelTable
	OpNewSet
	OpDelSet
	OpFlushSet
	OpNewChain
	OpDelChain
	OpFlushChain
	OpNewRule
	OpDelRule
	OpAddElement
	OpDelElement
	OpNewFlowtable
	OpDelFlowtable
	opKinds // number of kinds
)

// String returns nft's name of the kind.
func (k OpKind) String() string {
	return [opKinds]string{"add table", "delete table", "add set", "delete set", "flush set", "add chain", "delete chain",
		"flush chain", "add rule", "delete rule", "add element", "delete element", "add flowtable", "delete flowtable"}[k]
}

// Batch is one transaction under construction, encoded as it grows: an element costs its bytes and no allocation. The zero
// value is ready. Operations take effect in order; adding an object that exists unchanged is no error, deleting a missing one is.
// A Batch must be used by one goroutine.
type Batch struct {
	// Expect, if not 0, makes Commit fail with ErrGeneration unless it is still the current generation.
	Expect Generation

	buf   []byte // the messages, without the begin and end of the batch
	msgs  []message
	marks []mark // the tags of the bytes from an offset on; a new mark at each message and each change of tag
	count [opKinds]int
	tag   int
	setID uint32
	open  openList
}

// message is one netlink message of a batch.
type message struct {
	off  int
	kind OpKind
	list int // offset of the first element in an element list; 0 in other messages
}

type mark struct{ off, tag int }

// openList is the element list to which further elements of the same set are appended.
type openList struct {
	set  SetRef
	kind OpKind
	nest int // offset of NFTA_SET_ELEM_LIST_ELEMENTS; 0: no list is open
}

// Tag sets the caller's tag for the operations that follow, so that an error names them.
func (b *Batch) Tag(tag int) { b.tag = tag }

// Reset empties b and retains its memory.
func (b *Batch) Reset() {
	*b = Batch{buf: b.buf[:0], msgs: b.msgs[:0], marks: b.marks[:0]}
}

// Grow reserves n more bytes: about 60 for a map element of IPv4, 90 of IPv6.
func (b *Batch) Grow(n int) {
	if cap(b.buf)-len(b.buf) < n {
		b.buf = append(make([]byte, 0, len(b.buf)+n), b.buf...)
	}
}

// Len returns the number of operations: an element counts as one.
func (b *Batch) Len() int {
	n := 0
	for _, c := range b.count {
		n += c
	}
	return n
}

// Count returns the number of operations of one kind.
func (b *Batch) Count(k OpKind) int { return b.count[k] }

// Bytes returns the size of the encoded messages.
func (b *Batch) Bytes() int { return len(b.buf) }

// wire holds the message type and flags of each kind.
var wire = [opKinds]struct{ typ, flags uint16 }{
	OpNewTable:     {unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE},
	OpDelTable:     {unix.NFT_MSG_DELTABLE, 0},
	OpNewSet:       {unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE},
	OpDelSet:       {unix.NFT_MSG_DELSET, 0},
	OpFlushSet:     {unix.NFT_MSG_DELSETELEM, 0},
	OpNewChain:     {unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE},
	OpDelChain:     {unix.NFT_MSG_DELCHAIN, 0},
	OpFlushChain:   {unix.NFT_MSG_DELRULE, 0},
	OpNewRule:      {unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND},
	OpDelRule:      {unix.NFT_MSG_DELRULE, 0},
	OpAddElement:   {unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE},
	OpDelElement:   {unix.NFT_MSG_DELSETELEM, 0},
	OpNewFlowtable: {unix.NFT_MSG_NEWFLOWTABLE, unix.NLM_F_CREATE},
	OpDelFlowtable: {unix.NFT_MSG_DELFLOWTABLE, 0},
}

// begin opens a message; end closes it by writing its length. Commit sets the sequence number.
func (b *Batch) begin(k OpKind, f Family) {
	b.closeList()
	b.msgs = append(b.msgs, message{off: len(b.buf), kind: k})
	b.marks = append(b.marks, mark{len(b.buf), b.tag})
	if k != OpAddElement && k != OpDelElement {
		b.count[k]++
	}
	b.buf = appendMsgHdr(b.buf, nfnlSubsysNft<<8|wire[k].typ, unix.NLM_F_REQUEST|wire[k].flags)
	b.buf = append(b.buf, byte(f), 0, 0, 0)
}

func (b *Batch) end() {
	endMsg(b.buf, b.msgs[len(b.msgs)-1].off)
}

func (b *Batch) clearFlag(f uint16) {
	off := b.msgs[len(b.msgs)-1].off + 6
	binary.NativeEndian.PutUint16(b.buf[off:], binary.NativeEndian.Uint16(b.buf[off:])&^f)
}

func appendMsgHdr(b []byte, typ, flags uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return binary.NativeEndian.AppendUint32(b, 0)
}

// endMsg writes the length of the message that starts at off.
func endMsg(b []byte, off int) {
	binary.NativeEndian.PutUint32(b[off:], uint32(len(b)-off))
}

func millis(d time.Duration) uint64 { return uint64(d.Milliseconds()) }
