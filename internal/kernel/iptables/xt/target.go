package xt

import (
	"encoding/binary"
	"net/netip"
)

// Flags of a range of addresses and ports (NF_NAT_RANGE_*).
const (
	mapsAddress = 1 << iota
	mapsPort
	randomly
	_ // persistent
	randomlyFully
)

// natRange is struct nf_nat_range, or the older struct with IPv4 addresses only.
type natRange struct {
	flags       uint32
	first, last netip.Addr
	ports       [2]uint16
}

// oldRange decodes struct nf_nat_ipv4_multi_range_compat with one range: rangesize, flags,
// min_ip, max_ip, min, max.
func oldRange(info []byte) (natRange, bool) {
	if !holds(info, 20) || u32(info) != 1 {
		return natRange{}, false
	}
	return natRange{
		flags: u32(info[4:]), first: netip.AddrFrom4([4]byte(info[8:])), last: netip.AddrFrom4([4]byte(info[12:])),
		ports: [2]uint16{binary.BigEndian.Uint16(info[16:]), binary.BigEndian.Uint16(info[18:])},
	}, true
}

// newRange decodes struct nf_nat_range: flags, min_addr, max_addr, min_proto, max_proto.
func newRange(f Family, info []byte) natRange {
	r := natRange{flags: u32(info), ports: [2]uint16{binary.BigEndian.Uint16(info[36:]), binary.BigEndian.Uint16(info[38:])}}
	if f == IPv4 {
		r.first, r.last = netip.AddrFrom4([4]byte(info[4:])), netip.AddrFrom4([4]byte(info[20:]))
	} else {
		r.first, r.last = netip.AddrFrom16([16]byte(info[4:])), netip.AddrFrom16([16]byte(info[20:]))
	}
	return r
}

// readRange decodes the range of any revision: 0 is the older struct in IPv4; 2 has a base
// port after it (struct nf_nat_range2), which is used only with the flag PROTO_OFFSET.
func readRange(f Family, revision uint8, info []byte) (natRange, bool) {
	switch {
	case revision == 0 && f == IPv4:
		return oldRange(info)
	case revision <= 1 && holds(info, 40), revision == 2 && holds(info, 44):
		return newRange(f, info), true
	}
	return natRange{}, false
}

// dnat supports a single address, with one port or the packet's original one.
func dnat(dst []byte, f Family, revision uint8, info []byte) ([]byte, bool) {
	if revision == 0 && f == IPv6 {
		return dst, false // the first revision of IPv6 is 1
	}
	r, ok := readRange(f, revision, info)
	if !ok || r.flags&^mapsPort != mapsAddress || r.first != r.last || r.ports[0] != r.ports[1] {
		return dst, false
	}
	if a := r.first.As16(); f == IPv6 && embeds(a[:]) {
		return dst, false
	}
	dst = option(dst, false, "to-destination")
	if r.flags&mapsPort == 0 {
		return r.first.AppendTo(dst), true
	}
	return netip.AddrPortFrom(r.first, r.ports[0]).AppendTo(dst), true
}

func masquerade(dst []byte, f Family, revision uint8, info []byte) ([]byte, bool) {
	r, ok := readRange(f, revision, info)
	if !ok || revision != 0 || r.flags&^(randomly|randomlyFully) != 0 {
		return dst, false
	}
	if r.flags&randomly != 0 {
		dst = append(dst, " --random"...)
	}
	if r.flags&randomlyFully != 0 {
		dst = append(dst, " --random-fully"...)
	}
	return dst, true
}

// struct xt_mark_tginfo2: mark, mask.
func setMark(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 2 || !holds(info, 8) {
		return dst, false
	}
	dst = hex(option(dst, false, "set-xmark"), u32(info))
	return hex(append(dst, '/'), u32(info[4:])), true
}

// Answers by number (enum ipt_reject_with, enum ip6t_reject_with); "" for those
// that the programs do not name.
var (
	rejects4 = [...]string{
		"icmp-net-unreachable", "icmp-host-unreachable", "icmp-proto-unreachable", "icmp-port-unreachable", "",
		"icmp-net-prohibited", "icmp-host-prohibited", "tcp-reset", "icmp-admin-prohibited",
	}
	rejects6 = [...]string{
		"icmp6-no-route", "icmp6-adm-prohibited", "", "icmp6-addr-unreachable", "icmp6-port-unreachable", "",
		"tcp-reset", "icmp6-policy-fail", "icmp6-reject-route",
	}
)

func reject(dst []byte, f Family, revision uint8, info []byte) ([]byte, bool) {
	names := rejects4[:]
	if f == IPv6 {
		names = rejects6[:]
	}
	if revision != 0 || !holds(info, 4) {
		return dst, false
	}
	with := u32(info)
	if with >= uint32(len(names)) || names[with] == "" {
		return dst, false
	}
	return append(option(dst, false, "reject-with"), names[with]...), true
}
