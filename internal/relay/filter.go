package relay

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// maxFilter bounds a filter: the kernel takes 4096 instructions, and by default
// 20 KiB of them for one socket (net.core.optmem_max).
const maxFilter = 2000

// net0 is the offset of the network header for a filter's loads (SKF_NET_OFF); loads
// at smaller offsets begin at the transport header.
const net0 = 0xfff00000

// admitted returns which clients a listener at an address admits; all of them if any is
// true. The packets of others are dropped, not refused, as a firewall does.
func admitted(f *model.Frontend, w *Whereabouts, at netip.Addr) (list []netip.Prefix, any bool) {
	switch {
	case f.Verdict == model.Drop && (!f.LocalOnly || f.LocalVerdict == model.Drop):
		return nil, false
	case f.LocalOnly && f.LocalVerdict == model.Drop && f.Guarded:
		return intersect(w.prefixes(at), w.guests(f, at)), false
	case f.LocalOnly && f.LocalVerdict == model.Drop:
		return w.prefixes(at), false
	case f.Guarded:
		return w.guests(f, at), false
	}
	return nil, true
}

// intersect returns the prefixes that are inside a prefix of each list.
func intersect(a, b []netip.Prefix) (out []netip.Prefix) {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				if q.Bits() > p.Bits() {
					out = append(out, q)
				} else {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// filter returns a program for a socket that drops the packets of all clients but these. The
// kernel runs it before it answers: a client that is not admitted receives nothing. It
// takes no privilege. ok is false if it would be too long: then connections are
// accepted, checked and reset.
func filter(list []netip.Prefix, is4 bool) (program []unix.SockFilter, ok bool) {
	at, words := uint32(net0+12), 1 // the source address
	if !is4 {
		at, words = net0+8, 4
	}
	for _, p := range list {
		if p.Addr().Is4() == is4 {
			program = append(program, match(p, at, words)...)
		}
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}) // keep 0 bytes: drop
	return program, len(program) <= maxFilter
}

// match returns "keep all" if the source is inside one prefix, else it falls through.
func match(p netip.Prefix, at uint32, words int) []unix.SockFilter {
	raw := p.Addr().AsSlice()
	var tests []unix.SockFilter
	for i := range words {
		bits := min(32, p.Bits()-32*i)
		if bits <= 0 {
			break
		}
		tests = append(tests,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at + uint32(4*i)},
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: ^uint32(0) << (32 - bits)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(raw[4*i:])})
	}
	for i := range tests { // a failed test jumps behind the return
		if tests[i].Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K {
			tests[i].Jf = uint8(len(tests) - i)
		}
	}
	return append(tests, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fffffff})
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// attach sets the filter of a socket, or removes the one it has if program is nil.
func attach(fd uintptr, program []unix.SockFilter) error {
	if program == nil {
		err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if err == unix.ENOENT {
			return nil
		}
		return err
	}
	return unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}
