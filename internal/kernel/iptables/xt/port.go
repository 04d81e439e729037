package xt

const (
	allPorts     = 0xffff
	invertSource = 1 // XT_TCP_INV_SRCPT, XT_UDP_INV_SRCPT
	invertDest   = 2
)

// struct xt_tcp: source ports, destination ports, an option, two bytes of flags, flags of
// inverted tests. Tests of the option and of flags are not supported.
func tcp(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 0 || !holds(info, 12) || info[8]|info[9]|info[10] != 0 {
		return dst, false
	}
	return ports(dst, info, info[11])
}

// struct xt_udp: source ports, destination ports, flags of inverted tests.
func udp(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	if revision != 0 || !holds(info, 10) {
		return dst, false
	}
	return ports(dst, info, info[8])
}

// ports appends those of the two ranges at the begin of info that do not contain all ports.
func ports(dst, info []byte, invert byte) ([]byte, bool) {
	if invert&^(invertSource|invertDest) != 0 {
		return dst, false
	}
	for _, side := range [...]struct {
		at     int
		invert bool
		name   string
	}{{0, invert&invertSource != 0, "sport"}, {4, invert&invertDest != 0, "dport"}} {
		first, last := u16(info[side.at:]), u16(info[side.at+2:])
		if first == 0 && last == allPorts {
			if side.invert {
				return dst, false
			}
			continue
		}
		dst = span(option(dst, side.invert, side.name), first, last)
	}
	return dst, true
}

// struct xt_sctp_info: destination ports, source ports, a map of chunks of 64 numbers, how
// it is matched, 12 bytes and a number about chunks' flags, flags of enabled tests, flags of
// inverted tests. Tests of chunks are not supported.
func sctp(dst []byte, revision uint8, info []byte) ([]byte, bool) {
	const flagsAt, source, dest = 284, 1, 2
	if revision != 0 || !holds(info, 292) {
		return dst, false
	}
	flags, invert := u32(info[flagsAt:]), u32(info[flagsAt+4:])
	if (flags|invert)&^(source|dest) != 0 || invert&^flags != 0 {
		return dst, false
	}
	if flags&source != 0 {
		dst = span(option(dst, invert&source != 0, "sport"), u16(info[4:]), u16(info[6:]))
	}
	if flags&dest != 0 {
		dst = span(option(dst, invert&dest != 0, "dport"), u16(info), u16(info[2:]))
	}
	return dst, true
}
