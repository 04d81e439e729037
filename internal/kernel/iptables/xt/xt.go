package xt

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// Family is an IP family by its version number.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Extension is a match or a target in the kernel's binary form.
type Extension struct {
	Family   Family
	Name     string
	Revision uint8
	Info     []byte // the struct after xt_entry_match or xt_entry_target, or the value of NFTA_MATCH_INFO or NFTA_TARGET_INFO
}

// Name returns the name of a supported match or target, without allocating a string for each rule; "" for another.
func Name(kernels []byte) string {
	for _, k := range [...]string{"DNAT", "statistic", "comment", "recent", "MARK", "MASQUERADE", "REJECT", "conntrack", "addrtype",
		"sctp", "cluster", "nfacct", "mark", "tcp", "udp"} {
		if string(kernels) == k {
			return k
		}
	}
	return ""
}

// AppendMatch appends " -m NAME ...". It returns false, and dst unchanged, for a match
// that is not fully supported.
func AppendMatch(dst []byte, e *Extension) ([]byte, bool) {
	begin, revision, info := len(dst), e.Revision, e.Info
	dst = append(append(dst, " -m "...), e.Name...)
	ok := false
	switch e.Name {
	case "comment":
		dst, ok = comment(dst, revision, info)
	case "tcp":
		dst, ok = tcp(dst, revision, info)
	case "udp":
		dst, ok = udp(dst, revision, info)
	case "sctp":
		dst, ok = sctp(dst, revision, info)
	case "mark":
		dst, ok = mark(dst, revision, info)
	case "statistic":
		dst, ok = statistic(dst, revision, info)
	case "recent":
		dst, ok = recent(dst, e.Family, revision, info)
	case "addrtype":
		dst, ok = addrtype(dst, revision, info)
	case "conntrack":
		dst, ok = conntrack(dst, revision, info)
	case "cluster":
		dst, ok = cluster(dst, revision, info)
	case "nfacct":
		dst, ok = nfacct(dst, revision, info)
	}
	if !ok {
		return dst[:begin], false
	}
	return dst, true
}

// AppendTarget appends " -j NAME ...", as AppendMatch does. Verdicts and jumps are not
// targets here: see AppendVerdict and AppendJump.
func AppendTarget(dst []byte, e *Extension) ([]byte, bool) {
	begin, f, revision, info := len(dst), e.Family, e.Revision, e.Info
	dst = append(append(dst, " -j "...), e.Name...)
	ok := false
	switch e.Name {
	case "DNAT":
		dst, ok = dnat(dst, f, revision, info)
	case "MARK":
		dst, ok = setMark(dst, revision, info)
	case "MASQUERADE":
		dst, ok = masquerade(dst, f, revision, info)
	case "REJECT":
		dst, ok = reject(dst, f, revision, info)
	}
	if !ok {
		return dst[:begin], false
	}
	return dst, true
}

func u16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

func u32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// holds reports whether info is a struct of that size, with or without the padding to
// a multiple of eight (XT_ALIGN).
func holds(info []byte, size int) bool { return len(info) == size || len(info) == (size+7)&^7 }

// word returns the text in a field, up to the first NUL. It returns false for text that
// fills the field or has control characters: a line feed would begin another line.
func word(field []byte) ([]byte, bool) {
	end := bytes.IndexByte(field, 0)
	if end <= 0 {
		return nil, false
	}
	for _, c := range field[:end] {
		if c < ' ' {
			return nil, false
		}
	}
	return field[:end], true
}

// quoted appends text as iptables-save does: in quotes if it contains characters other than letters,
// digits, '_' and '-'.
func quoted(dst, text []byte) []byte {
	if plain(text) {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for _, c := range text {
		if c == '"' || c == '\\' || c == '\'' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

func plain(text []byte) bool {
	for _, c := range text {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !letter {
			return false
		}
	}
	return true
}

func number(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

// hex appends "0x4000".
func hex(dst []byte, n uint32) []byte { return strconv.AppendUint(append(dst, "0x"...), uint64(n), 16) }

// hex8 appends "0x00004000".
func hex8(dst []byte, n uint32) []byte {
	dst = append(dst, "0x"...)
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[n>>shift&15])
	}
	return dst
}

// span appends "80", or "80:90".
func span(dst []byte, first, last uint16) []byte {
	dst = number(dst, uint64(first))
	if first != last {
		dst = number(append(dst, ':'), uint64(last))
	}
	return dst
}

// option appends " --name ", or " ! --name ".
func option(dst []byte, invert bool, name string) []byte {
	if invert {
		dst = append(dst, " !"...)
	}
	dst = append(dst, " --"...)
	dst = append(dst, name...)
	return append(dst, ' ')
}
