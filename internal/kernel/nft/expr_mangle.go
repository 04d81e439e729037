package nft

import "golang.org/x/sys/unix"

// Constants of linux/netfilter/nf_tables.h that package unix lacks.
const (
	nftaSocketKey        = 1
	nftaSocketDreg       = 2
	nftSocketTransparent = 0
)

// SocketTransparent loads one byte: 1 if a socket of this host is bound to the packet's destination and has IP_TRANSPARENT.
// Without such a socket the rule breaks. Chains at prerouting, input and output (kernel 4.18).
func SocketTransparent(dreg Reg) Expr {
	return u32s("socket", nftaSocketKey, nftSocketTransparent, nftaSocketDreg, uint32(dreg))
}

// SetSourceAddr is `ip saddr set` from a register; the checksums that cover the address are updated.
func SetSourceAddr(f Family, sreg Reg) Expr {
	if f == IPv6 {
		return writeAddr(sreg, 8, 16)
	}
	return writeAddr(sreg, 12, 4)
}

// SetDestAddr is `ip daddr set` from a register; the checksums that cover the address are updated.
func SetDestAddr(f Family, sreg Reg) Expr {
	if f == IPv6 {
		return writeAddr(sreg, 24, 16)
	}
	return writeAddr(sreg, 16, 4)
}

// writeAddr writes n bytes; only the header of IPv4 has a checksum.
func writeAddr(sreg Reg, offset, n uint32) Expr {
	csumType, csumOffset := uint32(unix.NFT_PAYLOAD_CSUM_INET), uint32(10)
	if n == 16 {
		csumType, csumOffset = unix.NFT_PAYLOAD_CSUM_NONE, 0
	}
	return u32s("payload", unix.NFTA_PAYLOAD_SREG, uint32(sreg), unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER,
		unix.NFTA_PAYLOAD_OFFSET, offset, unix.NFTA_PAYLOAD_LEN, n, unix.NFTA_PAYLOAD_CSUM_TYPE, csumType,
		unix.NFTA_PAYLOAD_CSUM_OFFSET, csumOffset, unix.NFTA_PAYLOAD_CSUM_FLAGS, unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR)
}

// SetSourcePort is `tcp sport set` or `udp sport set`, by proto, which determines the checksum.
func SetSourcePort(proto uint8, sreg Reg) Expr { return writePort(proto, sreg, 0) }

// SetDestPort is `tcp dport set` or `udp dport set`, by proto, which determines the checksum.
func SetDestPort(proto uint8, sreg Reg) Expr { return writePort(proto, sreg, 2) }

func writePort(proto uint8, sreg Reg, offset uint32) Expr {
	checksum := uint32(6)
	if proto == unix.IPPROTO_TCP {
		checksum = 16
	}
	return u32s("payload", unix.NFTA_PAYLOAD_SREG, uint32(sreg), unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_TRANSPORT_HEADER,
		unix.NFTA_PAYLOAD_OFFSET, offset, unix.NFTA_PAYLOAD_LEN, 2, unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET,
		unix.NFTA_PAYLOAD_CSUM_OFFSET, checksum, unix.NFTA_PAYLOAD_CSUM_FLAGS, 0)
}
