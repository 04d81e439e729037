package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// elements executes an element message; like the kernel it stops at the first rejected element and names it.
func (tx *fakeTx) elements(m nlmsg, kind OpKind) (unix.Errno, int) {
	ref := SetRef{Table: TableRef{Family: m.family()}}
	var list []byte
	var listOff int
	off := nlmsgHdrLen + nfgenLen
	eachAttrAt(m.attrs(), func(at int, typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_LIST_TABLE:
			ref.Table.Name = string(cstr(d))
		case unix.NFTA_SET_ELEM_LIST_SET:
			ref.Name = string(cstr(d))
		case unix.NFTA_SET_ELEM_LIST_ELEMENTS:
			list, listOff = d, off+at+attrHdrLen
		}
	})
	s := tx.set(ref)
	if s == nil {
		return unix.ENOENT, 0
	}
	if kind == OpFlushSet {
		tx.flushSet(s)
		return 0, 0
	}
	dec := elementDecoder{chains: map[string]string{}}
	var errno unix.Errno
	var bad int
	eachAttrAt(list, func(at int, _ uint16, elem []byte) {
		if errno != 0 {
			return
		}
		dec.element(elem)
		if kind == OpAddElement {
			errno = tx.addElement(s, &dec.e)
		} else {
			errno = tx.delElement(s, &dec.e)
		}
		bad = listOff + at
	})
	return errno, bad
}

// eachAttrAt is netlink.EachAttr with each attribute's offset in b.
func eachAttrAt(b []byte, f func(at int, typ uint16, data []byte)) {
	for at := 0; at+attrHdrLen <= len(b); {
		n := int(binary.NativeEndian.Uint16(b[at:]))
		if n < attrHdrLen || at+n > len(b) {
			return
		}
		f(at, binary.NativeEndian.Uint16(b[at+2:])&attrTypeMax, b[at+attrHdrLen:at+n])
		at += align4(n)
	}
}

func (tx *fakeTx) addElement(s *fakeSet, e *Element) unix.Errno {
	if errno := s.check(e); errno != 0 {
		return errno
	}
	id := identity(e)
	if old, ok := s.elems[id]; ok {
		if !sameValue(&old, e) {
			return unix.EEXIST
		}
		return 0
	}
	if s.overlaps(e) {
		return unix.EEXIST
	}
	var to *fakeChain
	if e.Verdict.Chain != "" {
		c, errno := tx.target(s.row.Ref.Table, e.Verdict)
		if errno != 0 {
			return errno
		}
		to = c
	}
	if s.row.Size > 0 && len(s.elems) >= int(s.row.Size) {
		return unix.ENFILE
	}
	s.elems[id] = e.clone()
	if to != nil {
		to.refs++
	}
	tx.done(func() {
		delete(s.elems, id)
		if to != nil {
			to.refs--
		}
	})
	return 0
}

// check compares an element's shape with the set's.
func (s *fakeSet) check(e *Element) unix.Errno {
	r := &s.row
	isVerdict := r.Flags&SetMap != 0 && r.DataType == dataVerdict
	isData := r.Flags&SetMap != 0 && r.DataType != dataVerdict
	end := e.Flags&ElementIntervalEnd != 0
	switch {
	case e.Flags&ElementCatchall == 0 && len(e.Key) != int(r.KeyLen),
		len(e.KeyEnd) > 0 && (r.Flags&SetConcat == 0 || len(e.KeyEnd) != int(r.KeyLen)),
		end && r.Flags&SetInterval == 0,
		isVerdict && !end && e.Verdict.Code == 0,
		isData && !end && len(e.Data) != int(r.DataLen),
		r.Flags&SetMap == 0 && (len(e.Data) > 0 || e.Verdict.Code != 0):
		return unix.EINVAL
	}
	return 0
}

func (tx *fakeTx) delElement(s *fakeSet, e *Element) unix.Errno {
	if len(e.Key) != int(s.row.KeyLen) {
		return unix.EINVAL
	}
	id := identity(e)
	old, ok := s.elems[id]
	if !ok {
		return unix.ENOENT
	}
	tx.removeElement(s, id, old)
	return 0
}

func (tx *fakeTx) removeElement(s *fakeSet, id string, old Element) {
	to := tx.chain(s.row.Ref.Table.Chain(old.Verdict.Chain))
	delete(s.elems, id)
	if to != nil {
		to.refs--
	}
	tx.done(func() {
		s.elems[id] = old
		if to != nil {
			to.refs++
		}
	})
}

func (tx *fakeTx) flushSet(s *fakeSet) {
	for id, e := range s.elems {
		tx.removeElement(s, id, e)
	}
}
