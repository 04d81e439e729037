package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// AttrHeaderLen is the length of the header of each attribute.
const AttrHeaderLen = unix.SizeofNlAttr

// Attrs walks attributes without allocating: for each Next of them, Type and Data, which has no padding.
type Attrs struct {
	Rest []byte
	Type uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	Data []byte
	Bad  bool // one was malformed; Next has ended there
}

// Next goes on to the next one, if there is one.
func (a *Attrs) Next() bool {
	if len(a.Rest) == 0 {
		return false
	}
	n := AttrHeaderLen - 1
	if len(a.Rest) >= AttrHeaderLen {
		n = int(binary.NativeEndian.Uint16(a.Rest))
	}
	if n < AttrHeaderLen || n > len(a.Rest) {
		a.Bad = true
		return false
	}
	a.Type = binary.NativeEndian.Uint16(a.Rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.Data = a.Rest[AttrHeaderLen:n]
	a.Rest = a.Rest[min((n+3)&^3, len(a.Rest)):]
	return true
}

// EachAttr hands each to f. It is false if it ended at a malformed one.
func EachAttr(b []byte, f func(typ uint16, data []byte)) bool {
	a := Attrs{Rest: b}
	for a.Next() {
		f(a.Type, a.Data)
	}
	return !a.Bad
}
