package nft

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Expr is one encoded expression of a rule, in the order and form in which the kernel dumps it, so that a rule read back
// compares byte for byte (RuleSpec.Matches). Treat it as immutable; one Expr may serve many rules.
type Expr []byte

// Reg is a register number as the kernel dumps it.
type Reg uint32

// VerdictReg receives the result of a verdict map.
const VerdictReg Reg = 0

// Word returns the data register that starts at 32-bit word n (0 to 15): keys of several parts take consecutive words, an IPv6
// address four. The kernel names every fourth word by its 128-bit register.
func Word(n int) Reg {
	if n%4 == 0 {
		return Reg(unix.NFT_REG_1 + n/4)
	}
	return Reg(unix.NFT_REG32_00 + n)
}

// ExprWords returns the number of register words of a part in a key.
func (p Part) ExprWords() int { return align4(p.size()) / 4 }

// newExpr builds an expression whose attributes data appends.
func newExpr(name string, data func([]byte) []byte) Expr {
	b, elem := openNest(make([]byte, 0, 96), unix.NFTA_LIST_ELEM)
	b = appendString(b, unix.NFTA_EXPR_NAME, name)
	if data != nil {
		var off int
		b, off = openNest(b, unix.NFTA_EXPR_DATA)
		b = data(b)
		closeNest(b, off)
	}
	closeNest(b, elem)
	return b
}

// u32s builds the common expression that is a list of 32-bit attributes: type, value, type, value, …
func u32s(name string, pairs ...uint32) Expr {
	return newExpr(name, func(b []byte) []byte {
		for i := 0; i < len(pairs); i += 2 {
			b = appendU32(b, uint16(pairs[i]), pairs[i+1])
		}
		return b
	})
}

// eachExpr calls f for each expression of an encoded list. It returns false for a malformed list.
func eachExpr(raw []byte, f func(name string, data []byte)) bool {
	return netlink.EachAttr(raw, func(_ uint16, elem []byte) {
		var name string
		var data []byte
		netlink.EachAttr(elem, func(typ uint16, d []byte) {
			switch typ {
			case unix.NFTA_EXPR_NAME:
				name = string(cstr(d))
			case unix.NFTA_EXPR_DATA:
				data = d
			}
		})
		f(name, data)
	})
}
