package xt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// The head of a rule, which iptables-save prints before the matches, in this order: AppendAddress for 's'
// and 'd', AppendInterface for 'i' and 'o', AppendProtocol.

// Address is a test of an address. Both parts have 4 or 16 bytes.
type Address struct {
	Addr, Mask []byte
	Invert     bool
}

// AppendAddress appends " -s 10.0.0.0/8" for the letter 's', or " ! -s 10.0.0.0/8". A mask
// of zeros is no test and appends nothing. It returns false for a mask with holes, and for an address
// that the programs print in another notation.
func AppendAddress(dst []byte, letter byte, t Address) ([]byte, bool) {
	addr, mask, invert := t.Addr, t.Mask, t.Invert
	length, ok := prefixLength(mask)
	a, fits := netip.AddrFromSlice(addr)
	switch {
	case !ok || !fits || len(addr) != len(mask) || embeds(addr):
		return dst, false
	case length == 0:
		return dst, !invert && a.IsUnspecified()
	}
	dst = a.AppendTo(flag(dst, letter, invert))
	return number(append(dst, '/'), uint64(length)), true
}

// embeds reports whether glibc prints the last half of an address with dots, as in ::192.0.2.1; netip does not.
func embeds(addr []byte) bool {
	return len(addr) == 16 && bytes.Equal(addr[:12], make([]byte, 12)) && addr[12]|addr[13] != 0
}

func prefixLength(mask []byte) (int, bool) {
	n := 0
	for len(mask) >= 4 {
		part := binary.BigEndian.Uint32(mask)
		ones := bits.LeadingZeros32(^part)
		if part<<ones != 0 {
			return 0, false
		}
		n += ones
		mask = mask[4:]
		if ones < 32 {
			break
		}
	}
	for _, b := range mask {
		if b != 0 {
			return 0, false
		}
	}
	return n, true
}

// Interface is a test of an interface's name.
type Interface struct {
	Name   []byte
	Begins bool // Name is a prefix
	Invert bool
}

// AppendInterface appends " -i eth0" for the letter 'i', or " -i eth+".
func AppendInterface(dst []byte, letter byte, t Interface) ([]byte, bool) {
	if len(t.Name) == 0 {
		return dst, false
	}
	for _, c := range t.Name {
		if c <= ' ' {
			return dst, false
		}
	}
	dst = append(flag(dst, letter, t.Invert), t.Name...)
	if t.Begins {
		dst = append(dst, '+')
	}
	return dst, true
}

// AppendProtocol appends " -p tcp". The programs take names from /etc/protocols, so it supports only
// those that are the same on every host.
func AppendProtocol(dst []byte, protocol uint16, invert bool) ([]byte, bool) {
	name := ""
	switch protocol {
	case 1:
		name = "icmp"
	case 6:
		name = "tcp"
	case 17:
		name = "udp"
	case 132:
		name = "sctp"
	default:
		return dst, false
	}
	return append(flag(dst, 'p', invert), name...), true
}

// flag appends " -s ", or " ! -s ".
func flag(dst []byte, letter byte, invert bool) []byte {
	if invert {
		dst = append(dst, " !"...)
	}
	return append(dst, ' ', '-', letter, ' ')
}

// The verdicts of a rule without a target, in the kernel's numbering (NF_DROP and the
// others, XT_RETURN).
const (
	Drop   = -0 - 1
	Accept = -1 - 1
	Return = -4 - 1
)

// AppendVerdict appends " -j ACCEPT".
func AppendVerdict(dst []byte, verdict int32) ([]byte, bool) {
	switch verdict {
	case Drop:
		return append(dst, " -j DROP"...), true
	case Accept:
		return append(dst, " -j ACCEPT"...), true
	case Return:
		return append(dst, " -j RETURN"...), true
	}
	return dst, false
}

// AppendJump appends " -j CHAIN", or " -g CHAIN" for a goto, from which packets do not return.
func AppendJump(dst []byte, chain string, goTo bool) []byte {
	word := " -j "
	if goTo {
		word = " -g "
	}
	return append(append(dst, word...), chain...)
}
