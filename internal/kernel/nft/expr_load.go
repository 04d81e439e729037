package nft

import "golang.org/x/sys/unix"

// Payload loads n bytes of the packet at an offset from base (unix.NFT_PAYLOAD_*).
func Payload(dreg Reg, base, offset, n uint32) Expr {
	return u32s("payload", unix.NFTA_PAYLOAD_DREG, uint32(dreg), unix.NFTA_PAYLOAD_BASE, base,
		unix.NFTA_PAYLOAD_OFFSET, offset, unix.NFTA_PAYLOAD_LEN, n)
}

// SourceAddr loads `ip saddr` or `ip6 saddr`.
func SourceAddr(f Family, dreg Reg) Expr {
	if f == IPv6 {
		return Payload(dreg, unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 16)
	}
	return Payload(dreg, unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4)
}

// DestAddr loads `ip daddr` or `ip6 daddr`.
func DestAddr(f Family, dreg Reg) Expr {
	if f == IPv6 {
		return Payload(dreg, unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16)
	}
	return Payload(dreg, unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4)
}

// SourcePort loads `th sport` (or tcp, udp, sctp sport: they share the offset).
func SourcePort(dreg Reg) Expr { return Payload(dreg, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2) }

// DestPort loads `th dport` (or tcp, udp, sctp dport: they share the offset).
func DestPort(dreg Reg) Expr { return Payload(dreg, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }

// Meta loads meta data of the packet (unix.NFT_META_*).
func Meta(key uint32, dreg Reg) Expr {
	return u32s("meta", unix.NFTA_META_KEY, key, unix.NFTA_META_DREG, uint32(dreg))
}

// MetaSet writes meta data of the packet (unix.NFT_META_MARK and others) from a register.
func MetaSet(key uint32, sreg Reg) Expr {
	return u32s("meta", unix.NFTA_META_KEY, key, unix.NFTA_META_SREG, uint32(sreg))
}

// MetaL4Proto loads `meta l4proto`, which skips IPv6 extension headers.
func MetaL4Proto(dreg Reg) Expr { return Meta(unix.NFT_META_L4PROTO, dreg) }

// MetaMark loads `meta mark`.
func MetaMark(dreg Reg) Expr { return Meta(unix.NFT_META_MARK, dreg) }

// Ct loads a conntrack key that has no direction (unix.NFT_CT_STATE, _STATUS, _MARK, _DIRECTION).
func Ct(key uint32, dreg Reg) Expr {
	return u32s("ct", unix.NFTA_CT_DREG, uint32(dreg), unix.NFTA_CT_KEY, key)
}

// CtOriginal loads a conntrack key of the original direction: unix.NFT_CT_DST_IP, _DST_IP6, _PROTO_DST, _SRC_IP….
func CtOriginal(key uint32, dreg Reg) Expr { return ctDirected(key, dreg, 0) }

// directionReply is IP_CT_DIR_REPLY.
const directionReply = 1

func ctDirected(key uint32, dreg Reg, direction uint8) Expr {
	return newExpr("ct", func(b []byte) []byte {
		b = appendU32(b, unix.NFTA_CT_DREG, uint32(dreg))
		b = appendU32(b, unix.NFTA_CT_KEY, key)
		return appendU8(b, unix.NFTA_CT_DIRECTION, direction)
	})
}

// CtOriginalDest loads `ct original ip daddr` or `ct original ip6 daddr`.
func CtOriginalDest(f Family, dreg Reg) Expr {
	if f == IPv6 {
		return CtOriginal(unix.NFT_CT_DST_IP6, dreg)
	}
	return CtOriginal(unix.NFT_CT_DST_IP, dreg)
}

// CtOriginalSource loads `ct original ip saddr` or `ct original ip6 saddr`.
func CtOriginalSource(f Family, dreg Reg) Expr {
	if f == IPv6 {
		return CtOriginal(unix.NFT_CT_SRC_IP6, dreg)
	}
	return CtOriginal(unix.NFT_CT_SRC_IP, dreg)
}

// CtReplySource loads `ct reply ip saddr` or `ct reply ip6 saddr`: the source of replies, before any reverse translation.
func CtReplySource(f Family, dreg Reg) Expr {
	if f == IPv6 {
		return ctDirected(unix.NFT_CT_SRC_IP6, dreg, directionReply)
	}
	return ctDirected(unix.NFT_CT_SRC_IP, dreg, directionReply)
}

// CtOriginalDestPort loads `ct original proto-dst`.
func CtOriginalDestPort(dreg Reg) Expr { return CtOriginal(unix.NFT_CT_PROTO_DST, dreg) }

// CtPackets loads `ct packets`, the sum of both directions, into two words. The kernel turns conntrack's accounting on for
// the network namespace when such a rule is added; flows from before it have no counters.
func CtPackets(dreg Reg) Expr { return Ct(unix.NFT_CT_PKTS, dreg) }

// FibSourceType loads `fib saddr type` (unix.RTN_LOCAL and others, host order).
func FibSourceType(dreg Reg) Expr {
	return u32s("fib", unix.NFTA_FIB_DREG, uint32(dreg), unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE,
		unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_SADDR)
}

// RandomSlot loads `numgen random mod n`.
func RandomSlot(dreg Reg, n uint32) Expr {
	return u32s("numgen", unix.NFTA_NG_DREG, uint32(dreg), unix.NFTA_NG_MODULUS, n,
		unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM, unix.NFTA_NG_OFFSET, 0)
}

// HashSpec is `jhash <n bytes at Source> mod Modulus seed Seed offset Offset`.
type HashSpec struct {
	Source, Dest Reg
	Bytes        uint32
	Modulus      uint32
	Seed         uint32
	Offset       uint32 // added to the result
}

// Hash computes a Jenkins hash of registers.
func Hash(h HashSpec) Expr {
	p := []uint32{unix.NFTA_HASH_SREG, uint32(h.Source), unix.NFTA_HASH_DREG, uint32(h.Dest),
		unix.NFTA_HASH_LEN, h.Bytes, unix.NFTA_HASH_MODULUS, h.Modulus, unix.NFTA_HASH_SEED, h.Seed}
	if h.Offset != 0 { // the kernel does not dump a zero
		p = append(p, unix.NFTA_HASH_OFFSET, h.Offset)
	}
	return u32s("hash", append(p, unix.NFTA_HASH_TYPE, unix.NFT_HASH_JENKINS)...)
}
