package nftsave

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// source is the content of a register.
type source uint8

const (
	nothing source = iota
	sourceAddress
	destAddress
	inputName
	outputName
	layer4
	mark
	sourcePort
	destPort
	bothPorts
)

// field is the content of a register, and the mask applied to it.
type field struct {
	what   source
	number uint32
	size   int
	masked bool
	mask   [16]byte
}

// loaded records the new content of a register. It rejects a load over unused content:
// iptables writes no such rule.
func (r *rule) loaded(f field) bool {
	unused := r.reg.what != nothing
	r.reg = f
	return !unused && f.what != nothing
}

func (r *rule) meta(data []byte) bool {
	f, ok := field{size: 4}, true
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		var n uint32
		n, ok = number(a.Data)
		switch a.Type {
		case unix.NFTA_META_DREG:
			f.number = n
		case unix.NFTA_META_KEY:
			switch n {
			case unix.NFT_META_MARK:
				f.what = mark
			case unix.NFT_META_IIFNAME:
				f.what, f.size = inputName, unix.IFNAMSIZ
			case unix.NFT_META_OIFNAME:
				f.what, f.size = outputName, unix.IFNAMSIZ
			case unix.NFT_META_L4PROTO:
				f.what, f.size = layer4, 1
			}
		default: // writes a register into the packet's metadata
			ok = false
		}
	}
	return ok && !a.Bad && r.loaded(f)
}

func (r *rule) payload(data []byte) bool {
	var base, offset, size uint32
	f, ok := field{}, true
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		var n uint32
		n, ok = number(a.Data)
		switch a.Type {
		case unix.NFTA_PAYLOAD_DREG:
			f.number = n
		case unix.NFTA_PAYLOAD_BASE:
			base = n
		case unix.NFTA_PAYLOAD_OFFSET:
			offset = n
		case unix.NFTA_PAYLOAD_LEN:
			size = n
		default: // writes a register into the packet
			ok = false
		}
	}
	f.what, f.size = r.inPacket(base, offset, size), int(size)
	return ok && !a.Bad && r.loaded(f)
}

// inPacket returns the field at an offset after a header. For an address whose mask ends at a
// byte boundary, fewer bytes than the whole address are loaded.
func (r *rule) inPacket(base, offset, size uint32) source {
	whole := uint32(r.addressSize())
	sourceAt := uint32(12)
	if r.family == xt.IPv6 {
		sourceAt = 8
	}
	switch {
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && size >= 1 && size <= whole:
		switch offset {
		case sourceAt:
			return sourceAddress
		case sourceAt + whole:
			return destAddress
		}
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && r.hasPorts():
		switch {
		case offset == 0 && size == 2:
			return sourcePort
		case offset == 2 && size == 2:
			return destPort
		case offset == 0 && size == 4:
			return bothPorts
		}
	}
	return nothing
}

// hasPorts reports whether the rule tests a protocol whose ports iptables-nft tests with
// expressions; the ports of SCTP are a match of x_tables.
func (r *rule) hasPorts() bool {
	p := &r.protocol
	return p.given && !p.invert && (p.number == unix.IPPROTO_TCP || p.number == unix.IPPROTO_UDP)
}

func (r *rule) bitwise(data []byte) bool {
	ok := r.reg.what != nothing && !r.reg.masked
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		ok = r.reg.masking(a.Type, a.Data)
	}
	return ok && !a.Bad && r.reg.masked
}

// masking decodes one attribute of the expression that applies a mask to the register.
func (f *field) masking(typ uint16, data []byte) bool {
	switch typ {
	case unix.NFTA_BITWISE_SREG, unix.NFTA_BITWISE_DREG:
		return isNumber(data, f.number)
	case unix.NFTA_BITWISE_LEN:
		return isNumber(data, uint32(f.size))
	case unix.NFTA_BITWISE_MASK:
		mask, ok := value(data)
		copy(f.mask[:], mask)
		f.masked = ok && len(mask) == f.size
		return f.masked
	case unix.NFTA_BITWISE_XOR:
		xor, ok := value(data)
		return ok && zero(xor)
	case nftaBitwiseOp:
		return isNumber(data, bitwiseBool)
	}
	return false
}

func isNumber(data []byte, want uint32) bool {
	n, ok := number(data)
	return ok && n == want
}

// Constants of nf_tables.h that golang.org/x/sys/unix lacks.
const (
	nftaBitwiseOp = 6
	bitwiseBool   = 0 // NFT_BITWISE_MASK_XOR
)

// value unwraps NFTA_DATA_VALUE.
func value(data []byte) ([]byte, bool) {
	a := netlink.Attrs{Rest: data}
	ok := a.Next() && a.Type == unix.NFTA_DATA_VALUE && len(a.Rest) == 0
	return a.Data, ok
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
