package nftsave

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// number decodes 32 bits, big endian as in all attributes of nf_tables.
func number(d []byte) (uint32, bool) {
	if len(d) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(d), true
}

// name returns a string attribute without its final NUL.
func name(d []byte) []byte {
	if n := len(d); n > 0 && d[n-1] == 0 {
		return d[:n-1]
	}
	return d
}

// appendName appends a string attribute, with a final NUL and padding.
func appendName(b []byte, typ uint16, s string) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(netlink.AttrHeaderLen+len(s)+1))
	b = append(binary.NativeEndian.AppendUint16(b, typ), s...)
	for b = append(b, 0); len(b)%4 != 0; {
		b = append(b, 0)
	}
	return b
}
