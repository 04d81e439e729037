package xt

import "net/netip"

// struct xt_recent_mtinfo_v1: seconds, hit_count, check_set, invert, name (200), side,
// mask (16).
func recent(dst []byte, f Family, revision uint8, info []byte) ([]byte, bool) {
	const nameAt, sideAt, maskAt, size = 10, 210, 212, 228
	if revision != 1 || !holds(info, size) || info[9] > 1 || info[sideAt] > 1 {
		return dst, false
	}
	dst, known := remembers(dst, info)
	name, ok := word(info[nameAt:sideAt])
	mask := info[maskAt : maskAt+16]
	if f == IPv4 {
		mask = mask[:4]
	}
	if !known || !ok || embeds(mask) {
		return dst, false
	}
	dst = append(option(dst, false, "name"), name...)
	a, _ := netip.AddrFromSlice(mask)
	dst = a.AppendTo(option(dst, false, "mask"))
	if info[sideAt] == 0 {
		return append(dst, " --rsource"...), true
	}
	return append(dst, " --rdest"...), true
}

// remembers appends the operation on the list and its conditions: check_set is a verb and two
// flags.
func remembers(dst, info []byte) ([]byte, bool) {
	const byTTL, reap = 16, 32 // XT_RECENT_TTL, XT_RECENT_REAP
	does, seconds, hits := info[8], u32(info), u32(info[4:])
	verbs := [...]string{1: "rcheck", 2: "set", 4: "update", 8: "remove"}
	verb := does &^ (byTTL | reap)
	if int(verb) >= len(verbs) || verbs[verb] == "" || does&reap != 0 && seconds == 0 {
		return dst, false
	}
	if info[9] == 1 {
		dst = append(dst, " !"...)
	}
	dst = append(append(dst, " --"...), verbs[verb]...)
	if seconds != 0 {
		dst = number(option(dst, false, "seconds"), uint64(seconds))
	}
	if does&reap != 0 {
		dst = append(dst, " --reap"...)
	}
	if hits != 0 {
		dst = number(option(dst, false, "hitcount"), uint64(hits))
	}
	if does&byTTL != 0 {
		dst = append(dst, " --rttl"...)
	}
	return dst, true
}
