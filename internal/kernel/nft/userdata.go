package nft

import "encoding/binary"

// User data describes how nft prints values that the kernel stores as bytes. It is TLVs with one-byte types and lengths; numbers in
// it are in host order. Without it `nft list` aborts on a map over a concatenation. All numbers here are enums of nft 1.0.6
// itself (its expression and protocol identifiers are part of the stored format); the tests compare every shape with nft's
// output.
const (
	udKeyOrder     = 0
	udDataOrder    = 1
	udKeyTypeof    = 3
	udDataTypeof   = 4
	udDataInterval = 6

	// inside a typeof: the expression's identifier and its own TLVs
	udExpr     = 0
	udExprData = 1

	udPayload = 7
	udMeta    = 9
	udConcat  = 13
	udNumgen  = 23
)

// slotModulus is the modulus that nft prints for a Slot part: numgen random mod 65536. Only the type matters to nft, not the number.
const slotModulus = 65536

// UserData returns the user data of the set as nft 1.0.6 writes it.
func (s *SetSpec) UserData() []byte {
	isMap := s.Verdicts || len(s.Data) > 0
	b := appendUDNum(nil, udKeyOrder, order(s.Key))
	if isMap {
		b = appendUDNum(b, udDataOrder, order(s.Data))
	}
	b = s.appendTypeof(b, udKeyTypeof, s.Key)
	b = s.appendTypeof(b, udDataTypeof, s.Data)
	if isMap {
		b = appendUDNum(b, udDataInterval, 0)
	}
	return b
}

// order returns nft's byte order of a single part: 0 none, 1 host, 2 big endian.
func order(parts []Part) uint32 {
	if len(parts) != 1 {
		return 0
	}
	switch parts[0] {
	case L4Proto: // one byte has no order
		return 0
	case MarkPart, Slot, IfName:
		return 1
	}
	return 2
}

// appendTypeof appends the description of a concatenation or, with Typeof, of any key: with Typeof field by field, otherwise
// (declared by type) as an empty concatenation, as nft does.
func (s *SetSpec) appendTypeof(b []byte, typ byte, parts []Part) []byte {
	if len(parts) == 0 || len(parts) == 1 && !s.Typeof {
		return b
	}
	return appendUD(b, typ, func(b []byte) []byte {
		if len(parts) == 1 {
			return parts[0].appendTypeof(b)
		}
		b = appendUDNum(b, udExpr, udConcat)
		return appendUD(b, udExprData, func(b []byte) []byte {
			if !s.Typeof {
				return b
			}
			for i, p := range parts {
				b = appendUD(b, byte(i), p.appendTypeof)
			}
			return b
		})
	})
}

// appendTypeof appends the packet field that nft prints for a part.
func (p Part) appendTypeof(b []byte) []byte {
	switch p {
	case Addr4: // ip daddr
		return appendUDExpr(b, udPayload, 12, 12)
	case Addr6: // ip6 daddr
		return appendUDExpr(b, udPayload, 13, 9)
	case Port: // th dport
		return appendUDExpr(b, udPayload, 11, 2)
	case L4Proto: // meta l4proto
		return appendUDExpr(b, udMeta, 16)
	case MarkPart: // meta mark
		return appendUDExpr(b, udMeta, 3)
	case IfName: // meta iifname
		return appendUDExpr(b, udMeta, 6)
	}
	return appendUDExpr(b, udNumgen, 1, slotModulus, 0) // numgen random mod 65536 offset 0
}

// appendUDExpr appends an expression: its identifier and its numbers as TLVs 0, 1, 2….
func appendUDExpr(b []byte, id uint32, nums ...uint32) []byte {
	b = appendUDNum(b, udExpr, id)
	return appendUD(b, udExprData, func(b []byte) []byte {
		for i, n := range nums {
			b = appendUDNum(b, byte(i), n)
		}
		return b
	})
}

func appendUDNum(b []byte, typ byte, v uint32) []byte {
	return binary.NativeEndian.AppendUint32(append(b, typ, 4), v)
}

func appendUD(b []byte, typ byte, value func([]byte) []byte) []byte {
	b = append(b, typ, 0)
	off := len(b)
	b = value(b)
	b[off-1] = byte(len(b) - off)
	return b
}

// Comment returns the user data that makes nft print an element (or rule, chain, table, set) with `comment "text"`. nft allows
// 128 bytes; longer text is truncated.
func Comment(text string) []byte { return AppendComment(nil, text) }

// AppendComment appends Comment(text) to b.
func AppendComment(b []byte, text string) []byte {
	text = text[:min(len(text), 127)]
	b = append(b, 0, byte(len(text)+1))
	b = append(b, text...)
	return append(b, 0)
}
