package nft

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// SetVerdict ends the rule with a verdict.
func SetVerdict(v Verdict) Expr {
	return newExpr("immediate", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_IMMEDIATE_DREG, uint32(VerdictReg))
		return appendVerdict(b, unix.NFTA_IMMEDIATE_DATA, v)
	})
}

// Immediate loads a constant.
func Immediate(dreg Reg, data []byte) Expr {
	return newExpr("immediate", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_IMMEDIATE_DREG, uint32(dreg))
		return appendData(b, unix.NFTA_IMMEDIATE_DATA, data)
	})
}

// NATSpec is the registers that hold the new address and port of a NAT expression.
type NATSpec struct {
	Family Family // of the addresses: IPv4 or IPv6
	Addr   Reg
	Proto  Reg // 0: keep the port
}

// NAT range flags (NF_NAT_RANGE_*).
const (
	natMapIPs      = 1
	natProto       = 2
	natFullyRandom = 16
)

// DNAT rewrites the destination. Chains of type nat only, prerouting and output.
//
// It writes the maxima and range flags that the kernel would fill in, so that the dump equals it.
func DNAT(n NATSpec) Expr {
	p := []uint32{unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT, unix.NFTA_NAT_FAMILY, uint32(n.Family),
		unix.NFTA_NAT_REG_ADDR_MIN, uint32(n.Addr), unix.NFTA_NAT_REG_ADDR_MAX, uint32(n.Addr)}
	flags := uint32(natMapIPs)
	if n.Proto != 0 {
		p = append(p, unix.NFTA_NAT_REG_PROTO_MIN, uint32(n.Proto), unix.NFTA_NAT_REG_PROTO_MAX, uint32(n.Proto))
		flags |= natProto
	}
	return u32s("nat", append(p, unix.NFTA_NAT_FLAGS, flags)...)
}

// Masquerade is `masquerade fully-random`: without it two flows may choose the same source port concurrently, and one packet is lost.
func Masquerade() Expr { return u32s("masq", unix.NFTA_MASQ_FLAGS, natFullyRandom) }

// RejectPort is `reject with icmp port-unreachable` of the family.
func RejectPort(f Family) Expr {
	code := uint8(3)
	if f == IPv6 {
		code = 4
	}
	return newExpr("reject", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		return appendU8(b, unix.NFTA_REJECT_ICMP_CODE, code)
	})
}

// RejectReset is `reject with tcp reset`; the rule must have matched TCP before.
func RejectReset() Expr { return u32s("reject", unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST) }

// CountPackets is `counter`, from zero.
func CountPackets() Expr {
	return newExpr("counter", func(b []byte) []byte {
		return appendU64(appendU64(b, unix.NFTA_COUNTER_BYTES, 0), unix.NFTA_COUNTER_PACKETS, 0)
	})
}

// UpdateSpec is `update @Set { key timeout Timeout : data }` from registers.
type UpdateSpec struct {
	Set     string
	Key     Reg
	Data    Reg // 0: the set is no map
	Timeout time.Duration
	Count   bool // a counter in each element, from zero
}

// Update adds the key to a dynamic set or renews its timeout. For an existing key the data is unchanged.
func Update(u UpdateSpec) Expr {
	return newExpr("dynset", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_DYNSET_SREG_KEY, uint32(u.Key))
		if u.Data != 0 {
			b = appendU32(b, unix.NFTA_DYNSET_SREG_DATA, uint32(u.Data))
		}
		b = appendU32(b, unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		b = appendString(b, unix.NFTA_DYNSET_SET_NAME, u.Set)
		b = appendU64(b, unix.NFTA_DYNSET_TIMEOUT, millis(u.Timeout))
		if u.Count {
			at := len(b)
			b = append(b, CountPackets()...)
			binary.NativeEndian.PutUint16(b[at+2:], unix.NFTA_DYNSET_EXPR|unix.NLA_F_NESTED) // an attribute of dynset, not of a list
			return appendU32(b, unix.NFTA_DYNSET_FLAGS, nftDynsetExpr)
		}
		return appendU32(b, unix.NFTA_DYNSET_FLAGS, 0)
	})
}

// NoTrack exempts the packet from conntrack. Chains at priority raw only.
func NoTrack() Expr { return newExpr("notrack", nil) }

// FlowOffload is `flow add @flowtable`. Chains reached from the forward hook only.
func FlowOffload(flowtable string) Expr {
	return newExpr("flow_offload", func(b []byte) []byte { return appendString(b, nftaFlowTable, flowtable) })
}

// Forget deletes the key from a dynamic set. A missing key is no error, and the rule continues.
func Forget(set string, key, data Reg) Expr {
	return newExpr("dynset", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_DYNSET_SREG_KEY, uint32(key))
		b = appendU32(b, unix.NFTA_DYNSET_SREG_DATA, uint32(data))
		b = appendU32(b, unix.NFTA_DYNSET_OP, nftDynsetOpDelete)
		b = appendString(b, unix.NFTA_DYNSET_SET_NAME, set)
		return appendU32(b, unix.NFTA_DYNSET_FLAGS, 0)
	})
}
