package nft

import (
	"encoding/binary"
	"net/netip"
)

// Part is one part of a set's key or of a map's value: nft's data type, plus the packet field that prints it in a
// typeof declaration.
type Part uint8

// Parts. Every part takes a multiple of 4 bytes in a key.
const (
	Addr4    Part = iota + 1 // ipv4_addr; ip daddr
	Addr6                    // ipv6_addr; ip6 daddr
	L4Proto                  // inet_proto; meta l4proto
	Port                     // inet_service; th dport
	Slot                     // integer in host order; numgen random mod 65536. Only in typeof sets: nft rejects it by type
	MarkPart                 // mark
	IfName                   // ifname, 16 bytes
)

// Addr returns the address part of a family.
func Addr(f Family) Part {
	if f == IPv6 {
		return Addr6
	}
	return Addr4
}

// dataType returns nft's data type number; concatenations take six bits for each part.
func (p Part) dataType() uint32 {
	return [...]uint32{0, 7, 8, 12, 13, 4, 19, 41}[p]
}

func (p Part) size() int {
	return [...]int{0, 4, 16, 1, 2, 4, 4, 16}[p]
}

// AppendAddr appends an address part.
func AppendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		v := a.As4()
		return append(b, v[:]...)
	}
	v := a.As16()
	return append(b, v[:]...)
}

// AppendProto appends an IP protocol number part.
func AppendProto(b []byte, p uint8) []byte { return append(b, p, 0, 0, 0) }

// AppendPort appends a port part of a concatenation.
func AppendPort(b []byte, p uint16) []byte { return append(b, byte(p>>8), byte(p), 0, 0) }

// AppendSlot appends a slot number part: host order, as numgen produces it.
func AppendSlot(b []byte, n uint32) []byte { return binary.NativeEndian.AppendUint32(b, n) }

// AppendIfName appends an interface name part.
func AppendIfName(b []byte, name string) []byte {
	var v [16]byte
	copy(v[:15], name)
	return append(b, v[:]...)
}

// PrefixElements returns the elements of p in a plain interval set of addresses: the first address, and the first address after
// it marked as an end. There is no second one when p reaches the end of the address space.
func PrefixElements(p netip.Prefix) []Element {
	first, last := PrefixBounds(p)
	out := []Element{{Key: AppendAddr(nil, first)}}
	if next := last.Next(); next.IsValid() {
		out = append(out, Element{Key: AppendAddr(nil, next), Flags: ElementIntervalEnd})
	}
	return out
}

// PrefixBounds returns the first and the last address of p.
func PrefixBounds(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last
}
