package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Cmp breaks the rule unless the register compares to data according to op (unix.NFT_CMP_*).
func Cmp(op uint32, sreg Reg, data []byte) Expr {
	return newExpr("cmp", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_CMP_SREG, uint32(sreg))
		b = appendU32(b, unix.NFTA_CMP_OP, op)
		return appendData(b, unix.NFTA_CMP_DATA, data)
	})
}

// Equal breaks the rule unless the register equals data.
func Equal(sreg Reg, data []byte) Expr { return Cmp(unix.NFT_CMP_EQ, sreg, data) }

// NotEqual breaks the rule if the register equals data.
func NotEqual(sreg Reg, data []byte) Expr { return Cmp(unix.NFT_CMP_NEQ, sreg, data) }

// HostU32 returns v in the byte order in which registers hold marks, conntrack states and fib types.
func HostU32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// Bitwise is dreg = (sreg & mask) ^ xor, over len(mask) bytes.
func Bitwise(sreg, dreg Reg, mask, xor []byte) Expr {
	return newExpr("bitwise", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_BITWISE_SREG, uint32(sreg))
		b = appendU32(b, unix.NFTA_BITWISE_DREG, uint32(dreg))
		b = appendU32(b, unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		b = appendU32(b, nftaBitwiseOp, 0)
		b = appendData(b, unix.NFTA_BITWISE_MASK, mask)
		return appendData(b, unix.NFTA_BITWISE_XOR, xor)
	})
}

// SetBits is `reg or bits` on a 32-bit value in host order.
func SetBits(reg Reg, bits uint32) Expr { return Bitwise(reg, reg, HostU32(^bits), HostU32(bits)) }

// KeepBits is `reg and bits` on a 32-bit value in host order.
func KeepBits(reg Reg, bits uint32) Expr { return Bitwise(reg, reg, HostU32(bits), HostU32(0)) }

// BigEndian converts a number of n bytes from host order into the order in which Cmp compares greater and less.
func BigEndian(reg Reg, n uint32) Expr {
	return u32s("byteorder", unix.NFTA_BYTEORDER_SREG, uint32(reg), unix.NFTA_BYTEORDER_DREG, uint32(reg),
		unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON, unix.NFTA_BYTEORDER_LEN, n, unix.NFTA_BYTEORDER_SIZE, n)
}

// InSet breaks the rule unless the key at sreg is in the set.
func InSet(set string, sreg Reg) Expr { return lookup(set, sreg, nil, 0) }

// NotInSet breaks the rule if the key at sreg is in the set.
func NotInSet(set string, sreg Reg) Expr { return lookup(set, sreg, nil, unix.NFT_LOOKUP_F_INV) }

// LookupMap loads the value of the key at sreg into dreg, or breaks the rule if there is none.
func LookupMap(set string, sreg, dreg Reg) Expr { return lookup(set, sreg, &dreg, 0) }

// LookupVerdict applies the verdict of the key at sreg, or continues with the next rule if there is none.
func LookupVerdict(set string, sreg Reg) Expr {
	dreg := VerdictReg
	return lookup(set, sreg, &dreg, 0)
}

func lookup(set string, sreg Reg, dreg *Reg, flags uint32) Expr {
	return newExpr("lookup", func(b []byte) []byte {
		b = appendString(b, unix.NFTA_LOOKUP_SET, set)
		b = appendU32(b, unix.NFTA_LOOKUP_SREG, uint32(sreg))
		if dreg != nil {
			b = appendU32(b, unix.NFTA_LOOKUP_DREG, uint32(*dreg))
		}
		return appendU32(b, unix.NFTA_LOOKUP_FLAGS, flags)
	})
}
