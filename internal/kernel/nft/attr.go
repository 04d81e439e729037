package nft

import "encoding/binary"

// Attributes are appended without NLA_F_NESTED because the kernel dumps them so, and a rule read back must equal the rule
// written. In nfnetlink the kernel does not require the flag.

const (
	attrHdrLen  = 4
	nlmsgHdrLen = 16
	nfgenLen    = 4
	attrTypeMax = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
)

func align4(n int) int { return (n + 3) &^ 3 }

func appendPad(b []byte, n int) []byte {
	for ; n%4 != 0; n++ {
		b = append(b, 0)
	}
	return b
}

func appendHdr(b []byte, typ uint16, n int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHdrLen+n))
	return binary.NativeEndian.AppendUint16(b, typ)
}

func appendBytes(b []byte, typ uint16, data []byte) []byte {
	b = append(appendHdr(b, typ, len(data)), data...)
	return appendPad(b, len(data))
}

// appendString appends a NUL-terminated string, as the kernel does.
func appendString(b []byte, typ uint16, s string) []byte {
	b = append(appendHdr(b, typ, len(s)+1), s...)
	b = append(b, 0)
	return appendPad(b, len(s)+1)
}

func appendU32(b []byte, typ uint16, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHdr(b, typ, 4), v)
}

func appendU64(b []byte, typ uint16, v uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHdr(b, typ, 8), v)
}

func appendU8(b []byte, typ uint16, v uint8) []byte {
	return append(appendHdr(b, typ, 1), v, 0, 0, 0)
}

// openNest starts a nested attribute; closeNest at the returned offset writes its length.
func openNest(b []byte, typ uint16) ([]byte, int) {
	return appendHdr(b, typ, 0), len(b)
}

func closeNest(b []byte, off int) {
	binary.NativeEndian.PutUint16(b[off:], uint16(len(b)-off))
}

func be32(d []byte) uint32 {
	if len(d) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(d)
}

func be64(d []byte) uint64 {
	if len(d) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(d)
}

// cstr returns a string attribute without its terminator.
func cstr(d []byte) []byte {
	for i, c := range d {
		if c == 0 {
			return d[:i]
		}
	}
	return d
}
