package xt

import "math/bits"

// struct xt_comment_info: 256 characters.
func comment(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 0 || !holds(info, 256) {
		return dst, false
	}
	text, ok := word(info[:256])
	return quoted(option(dst, false, "comment"), text), ok
}

// struct xt_mark_mtinfo1: mark, mask, invert.
func mark(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 1 || !holds(info, 12) || info[8] > 1 {
		return dst, false
	}
	value, mask := u32(info), u32(info[4:])
	dst = hex(option(dst, info[8] == 1, "mark"), value)
	if mask != 0xffffffff {
		dst = hex(append(dst, '/'), mask)
	}
	return dst, true
}

// struct xt_statistic_info: mode, flags, and for mode 0, random, the share of
// packets in units of 2^-31. The rest is private to the kernel.
func statistic(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 0 || !holds(info, 24) {
		return dst, false
	}
	mode, flags, parts := u16(info), u16(info[2:]), u32(info[4:])
	if mode != 0 || flags > 1 || parts > 1<<31 {
		return dst, false
	}
	dst = append(dst, " --mode random"...)
	return share(option(dst, flags == 1, "probability"), parts), true
}

// share appends parts/2^31 with eleven digits after the point, rounded half to even
// as by printf. The rounded value is exact, because 2^31 is a power of two.
func share(dst []byte, parts uint32) []byte {
	const scale, shift = 100_000_000_000, 31
	high, low := bits.Mul64(uint64(parts), scale)
	whole, rest := high<<(64-shift)|low>>shift, low&(1<<shift-1)
	if rest > 1<<(shift-1) || rest == 1<<(shift-1) && whole&1 == 1 {
		whole++
	}
	dst = append(number(dst, whole/scale), '.')
	for digit := uint64(scale / 10); digit > 0; digit /= 10 {
		dst = append(dst, '0'+byte(whole/digit%10))
	}
	return dst
}

// struct xt_addrtype_info_v1: source, dest, flags.
func addrtype(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	const invertSource, invertDest, known = 1, 2, 3
	if revision != 1 || !holds(info, 8) {
		return dst, false
	}
	source, dest, flags := u16(info), u16(info[2:]), u32(info[4:])
	if flags&^known != 0 || (source|dest)>>len(addressTypes) != 0 {
		return dst, false
	}
	if source != 0 {
		dst = listed(option(dst, flags&invertSource != 0, "src-type"), uint32(source), addressTypes[:])
	}
	if dest != 0 {
		dst = listed(option(dst, flags&invertDest != 0, "dst-type"), uint32(dest), addressTypes[:])
	}
	return dst, true
}

// addressTypes is indexed by bit (XT_ADDRTYPE_UNSPEC and on).
var addressTypes = [...]string{"UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE", "PROHIBIT", "THROW", "NAT", "XRESOLVE"}

// listed appends the names of the bits that are set, separated by commas.
func listed(dst []byte, set uint32, names []string) []byte {
	some := false
	for bit, name := range names {
		if set>>bit&1 == 0 {
			continue
		}
		if some {
			dst = append(dst, ',')
		}
		some = true
		dst = append(dst, name...)
	}
	return dst
}

// struct xt_conntrack_mtinfo3: eight addresses, then fields of which only the state is
// supported: match_flags, invert_flags and state_mask.
func conntrack(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	const size, flagsAt, state, known = 164, 146, 1, 1<<7 | 1<<6 | 15
	if revision != 3 || !holds(info, size) {
		return dst, false
	}
	flags, invert, states := u16(info[flagsAt:]), u16(info[flagsAt+2:]), u16(info[flagsAt+4:])
	if flags != state || invert&^state != 0 || states == 0 || states&^known != 0 {
		return dst, false
	}
	dst = option(dst, invert != 0, "ctstate")
	begin := len(dst)
	for _, s := range [...]struct {
		bit  uint16
		name string
	}{{1, "INVALID"}, {1 << 3, "NEW"}, {1 << 2, "RELATED"}, {1 << 1, "ESTABLISHED"}, {1 << 6, "SNAT"}, {1 << 7, "DNAT"}} {
		if states&s.bit == 0 {
			continue
		}
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(dst, s.name...)
	}
	return dst, true
}

// struct xt_cluster_match_info: total_nodes, node_mask, hash_seed, flags.
func cluster(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 0 || !holds(info, 16) || u32(info[12:]) > 1 {
		return dst, false
	}
	dst = hex8(option(dst, u32(info[12:]) == 1, "cluster-local-nodemask"), u32(info[4:]))
	dst = number(option(dst, false, "cluster-total-nodes"), uint64(u32(info)))
	return hex8(option(dst, false, "cluster-hash-seed"), u32(info[8:])), true
}

// struct xt_nfacct_match_info, and that of revision 1: the name of the counter, and a field
// private to the kernel.
// iptables-save prints two blanks before the name.
func nfacct(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision > 1 || !holds(info, 40) {
		return dst, false
	}
	name, ok := word(info[:32])
	return quoted(append(option(dst, false, "nfacct-name"), ' '), name), ok
}
