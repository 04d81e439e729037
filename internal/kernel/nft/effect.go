package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Effect is the effect of a rule, of any program, on a packet, as far as it can be decoded without
// supporting every expression that the program can write.
type Effect struct {
	Ends  string        // "drop", "reject", "dnat", "redirect", "tproxy" or "queue"; "" if none of these
	Stops string        // "accept" or "return": it ends the evaluation of this chain, "" if neither
	Jumps []string      // chains that it jumps to
	Daddr *netip.Prefix // the one destination that it matches; nil: any, or unknown
	Saddr *netip.Prefix // the one source that it matches; nil: any, or unknown
	Dport uint16        // the one destination port that it matches; 0: any, or unknown
}

// EffectOf decodes a rule.
func EffectOf(r *Rule) Effect {
	e := effects{regs: map[uint32]field{}}
	netlink.EachAttr(r.Exprs, func(_ uint16, expr []byte) {
		var name string
		var data []byte
		netlink.EachAttr(expr, func(typ uint16, d []byte) {
			switch typ {
			case unix.NFTA_EXPR_NAME:
				name = string(cstr(d))
			case unix.NFTA_EXPR_DATA:
				data = d
			}
		})
		e.expr(name, data)
	})
	return e.out
}

// field is the part of a packet that a register holds.
type field struct {
	base, offset, length uint32
	mask                 []byte
}

type effects struct {
	regs map[uint32]field
	out  Effect
}

func (e *effects) expr(name string, data []byte) {
	at := map[uint16][]byte{}
	netlink.EachAttr(data, func(typ uint16, d []byte) { at[typ] = d })
	switch name {
	case "payload":
		e.regs[be32(at[unix.NFTA_PAYLOAD_DREG])] = field{base: be32(at[unix.NFTA_PAYLOAD_BASE]), offset: be32(at[unix.NFTA_PAYLOAD_OFFSET]), length: be32(at[unix.NFTA_PAYLOAD_LEN])}
	case "bitwise":
		f := e.regs[be32(at[unix.NFTA_BITWISE_SREG])]
		f.mask = slices.Clone(dataValue(at[unix.NFTA_BITWISE_MASK]))
		e.regs[be32(at[unix.NFTA_BITWISE_DREG])] = f
	case "meta", "ct", "fib", "rt", "numgen": // the first attribute of each is the register that it loads
		delete(e.regs, be32(at[1]))
	case "hash", "socket":
		delete(e.regs, be32(at[2]))
	case "cmp":
		if f, known := e.regs[be32(at[unix.NFTA_CMP_SREG])]; known && be32(at[unix.NFTA_CMP_OP]) == unix.NFT_CMP_EQ {
			e.equals(f, dataValue(at[unix.NFTA_CMP_DATA]))
		}
	case "immediate":
		var d elementDecoder
		d.chains = map[string]string{}
		e.verdict(d.verdict(at[unix.NFTA_IMMEDIATE_DATA]))
	case "reject", "tproxy", "queue":
		e.out.Ends = name
	case "redir":
		e.out.Ends = "redirect"
	case "nat":
		if be32(at[unix.NFTA_NAT_TYPE]) == unix.NFT_NAT_DNAT {
			e.out.Ends = "dnat"
		}
	case "target": // a target of iptables in its binary form
		e.out.Target(string(cstr(at[unix.NFTA_TARGET_NAME])))
	}
}

func (e *effects) verdict(v Verdict) {
	switch {
	case v.Code == CodeDrop:
		e.out.Ends = "drop"
	case v.Code == CodeAccept:
		e.out.Stops = "accept"
	case v.Code == CodeReturn:
		e.out.Stops = "return"
	case v.Chain != "":
		e.out.Jumps = append(e.out.Jumps, v.Chain)
	}
}

// Target records a target of iptables; it returns false for a chain, or a target that does not end the evaluation.
func (e *Effect) Target(name string) bool {
	switch name {
	case "DROP", "REJECT", "DNAT", "REDIRECT", "TPROXY":
		e.Ends = strings.ToLower(name)
	case "NFQUEUE":
		e.Ends = "queue"
	case "ACCEPT", "RETURN":
		e.Stops = strings.ToLower(name)
	default:
		return false
	}
	return true
}

// equals records a comparison of an address or a port.
func (e *effects) equals(f field, value []byte) {
	switch {
	case f.base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && f.offset == 2 && f.length == 2 && len(value) == 2:
		e.out.Dport = binary.BigEndian.Uint16(value)
	case f.base != unix.NFT_PAYLOAD_NETWORK_HEADER:
	case f.offset == 16 && f.length <= 4, f.offset == 24 && f.length <= 16 && f.length > 4:
		e.out.Daddr = prefixOf(f, value)
	case f.offset == 12 && f.length <= 4, f.offset == 8 && f.length <= 16 && f.length > 4:
		e.out.Saddr = prefixOf(f, value)
	}
}

// prefixOf decodes an address of which some bits, or the first bytes, are compared; nil if
// they do not form a prefix.
func prefixOf(f field, value []byte) *netip.Prefix {
	size := 4
	if f.offset == 24 || f.offset == 8 {
		size = 16
	}
	if len(value) > size || len(value) == 0 {
		return nil
	}
	bits := len(value) * 8
	if len(f.mask) == len(value) {
		bits = 0
		for bits < len(value)*8 && f.mask[bits/8]&(0x80>>(bits%8)) != 0 {
			bits++
		}
	}
	whole := make([]byte, size)
	copy(whole, value)
	a, _ := netip.AddrFromSlice(whole)
	p, err := a.Prefix(bits)
	if err != nil {
		return nil
	}
	return &p
}
