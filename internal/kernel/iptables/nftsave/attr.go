package nftsave

import "encoding/binary"

const (
	attrHeader = 4
	attrTypes  = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
)

// attrs walks netlink attributes without allocating: for each next of them, typ and data.
type attrs struct {
	rest []byte
	typ  uint16
	data []byte
	bad  bool // one was malformed; next has ended there
}

func (a *attrs) next() bool {
	if len(a.rest) == 0 {
		return false
	}
	n := attrHeader - 1
	if len(a.rest) >= attrHeader {
		n = int(binary.NativeEndian.Uint16(a.rest))
	}
	if n < attrHeader || n > len(a.rest) {
		a.bad = true
		return false
	}
	a.typ, a.data = binary.NativeEndian.Uint16(a.rest[2:])&attrTypes, a.rest[attrHeader:n]
	a.rest = a.rest[min((n+3)&^3, len(a.rest)):]
	return true
}

// number reads 32 bits, big endian as all of nf_tables' attributes are.
func number(d []byte) (uint32, bool) {
	if len(d) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(d), true
}

// name reads a string without the NUL that ends it.
func name(d []byte) []byte {
	if n := len(d); n > 0 && d[n-1] == 0 {
		return d[:n-1]
	}
	return d
}

// appendName appends a string attribute, ended by a NUL and filled up.
func appendName(b []byte, typ uint16, s string) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+len(s)+1))
	b = append(binary.NativeEndian.AppendUint16(b, typ), s...)
	for b = append(b, 0); len(b)%4 != 0; {
		b = append(b, 0)
	}
	return b
}
