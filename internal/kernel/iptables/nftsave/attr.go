package nftsave

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

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
	b = binary.NativeEndian.AppendUint16(b, uint16(netlink.AttrHeaderLen+len(s)+1))
	b = append(binary.NativeEndian.AppendUint16(b, typ), s...)
	for b = append(b, 0); len(b)%4 != 0; {
		b = append(b, 0)
	}
	return b
}
