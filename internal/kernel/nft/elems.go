package nft

import (
	"golang.org/x/sys/unix"
)

// maxList keeps an element list's 16-bit attribute length from overflowing: elements beyond it open another message.
const maxList = 64000

// element appends one element to the open list of its set, opening a message if none fits.
func (b *Batch) element(k OpKind, s SetRef, e *Element) {
	o := &b.open
	if o.nest == 0 || o.kind != k || o.set != s || len(b.buf)-o.nest > maxList-elementBytes(e) {
		b.begin(k, s.Table.Family)
		b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
		b.buf = appendString(b.buf, unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		o.set, o.kind = s, k
		b.buf, o.nest = openNest(b.buf, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		b.msgs[len(b.msgs)-1].list = len(b.buf)
	}
	if b.marks[len(b.marks)-1].tag != b.tag {
		b.marks = append(b.marks, mark{len(b.buf), b.tag})
	}
	b.count[k]++
	b.buf = appendElement(b.buf, e)
}

// EndList makes the next element open a separate message, so that a kernel that does not name a rejected element names the
// operations of fewer tags.
func (b *Batch) EndList() { b.closeList() }

// closeList writes the lengths of an open element list. Every function that needs complete messages calls it.
func (b *Batch) closeList() {
	if b.open.nest == 0 {
		return
	}
	closeNest(b.buf, b.open.nest)
	b.open.nest = 0
	b.end()
}

// elementBytes returns an upper bound of e's encoded size.
func elementBytes(e *Element) int {
	return 96 + len(e.Key) + len(e.KeyEnd) + len(e.Data) + len(e.Verdict.Chain) + len(e.UserData)
}

func appendElement(b []byte, e *Element) []byte {
	b, elem := openNest(b, unix.NFTA_LIST_ELEM)
	b = appendData(b, unix.NFTA_SET_ELEM_KEY, e.Key)
	if len(e.KeyEnd) > 0 {
		b = appendData(b, nftaElemKeyEnd, e.KeyEnd)
	}
	switch {
	case e.Verdict != (Verdict{}):
		b = appendVerdict(b, unix.NFTA_SET_ELEM_DATA, e.Verdict)
	case len(e.Data) > 0:
		b = appendData(b, unix.NFTA_SET_ELEM_DATA, e.Data)
	}
	if e.Flags != 0 {
		b = appendU32(b, unix.NFTA_SET_ELEM_FLAGS, uint32(e.Flags))
	}
	if e.Timeout > 0 {
		b = appendU64(b, unix.NFTA_SET_ELEM_TIMEOUT, millis(e.Timeout))
	}
	if len(e.UserData) > 0 {
		b = appendBytes(b, unix.NFTA_SET_ELEM_USERDATA, e.UserData)
	}
	closeNest(b, elem)
	return b
}

// appendData appends a value as NFTA_DATA_VALUE inside typ. A catch-all element has no key.
func appendData(b []byte, typ uint16, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	b, off := openNest(b, typ)
	b = appendBytes(b, unix.NFTA_DATA_VALUE, v)
	closeNest(b, off)
	return b
}
