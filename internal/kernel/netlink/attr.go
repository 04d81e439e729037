package netlink

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// AttrHeaderLen is the length of the header of each attribute.
const AttrHeaderLen = unix.SizeofNlAttr

// Attrs iterates over attributes without allocating: each Next sets Type and Data, which excludes padding.
type Attrs struct {
	Rest []byte
	Type uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	Data []byte
	Bad  bool // an attribute was malformed; Next stopped there
}

// Next advances to the next attribute; it returns false at the end.
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

// EachAttr calls f for each attribute. It returns false if it stopped at a malformed one.
func EachAttr(b []byte, f func(typ uint16, data []byte)) bool {
	a := Attrs{Rest: b}
	for a.Next() {
		f(a.Type, a.Data)
	}
	return !a.Bad
}
