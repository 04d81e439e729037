package nftsave

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// compare decodes a comparison of the register with a value. It consumes the register.
func (r *rule) compare(data []byte) bool {
	var op uint32
	var with []byte
	f, ok := r.reg, true
	r.reg = field{}
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		switch a.Type {
		case unix.NFTA_CMP_SREG:
			ok = isNumber(a.Data, f.number)
		case unix.NFTA_CMP_OP:
			op, ok = number(a.Data)
		case unix.NFTA_CMP_DATA:
			with, ok = value(a.Data)
		default:
			ok = false
		}
	}
	if !ok || a.Bad || len(with) == 0 {
		return false
	}
	switch op {
	case unix.NFT_CMP_EQ, unix.NFT_CMP_NEQ:
		return r.equals(&f, with, op == unix.NFT_CMP_NEQ)
	case unix.NFT_CMP_LTE: // a range of ports that begins with port 0
		return r.port(&f, []byte{0, 0}, with, false)
	case unix.NFT_CMP_GT: // outside such a range
		after, some := next(with)
		return some && r.port(&f, after[:], []byte{0xff, 0xff}, false)
	}
	return false
}

// next returns the port after the given one; false if there is none.
func next(port []byte) (after [2]byte, some bool) {
	if len(port) != 2 || port[0]&port[1] == 0xff {
		return after, false
	}
	binary.BigEndian.PutUint16(after[:], binary.BigEndian.Uint16(port)+1)
	return after, true
}

func (r *rule) equals(f *field, with []byte, invert bool) bool {
	if f.masked && f.what != sourceAddress && f.what != destAddress && f.what != mark {
		return false
	}
	switch f.what {
	case sourceAddress:
		return r.source.is(f, with, invert)
	case destAddress:
		return r.dest.is(f, with, invert)
	case inputName:
		return r.input.is(with, invert)
	case outputName:
		return r.output.is(with, invert)
	case mark:
		return r.marked(f, with, invert)
	case layer4:
		return r.protocol.is(with, invert)
	case sourcePort, destPort:
		return r.port(f, with, with, invert)
	case bothPorts:
		return len(with) == 4 && r.port(&field{what: sourcePort}, with[:2], with[:2], invert) && r.port(&field{what: destPort}, with[2:], with[2:], invert)
	}
	return false
}

func (p *protocol) is(with []byte, invert bool) bool {
	if p.given || len(with) != 1 {
		return false
	}
	*p = protocol{given: true, invert: invert, number: with[0]}
	return true
}

func (a *address) is(f *field, with []byte, invert bool) bool {
	if a.given || len(with) != f.size {
		return false
	}
	*a = address{given: true, invert: invert}
	copy(a.bytes[:], with)
	copy(a.mask[:f.size], bytes.Repeat([]byte{0xff}, f.size))
	if f.masked {
		copy(a.mask[:f.size], f.mask[:f.size])
	}
	return true
}

// is records the test of a name with its NUL or, without one, of a prefix of a name. The kernel
// pads neither.
func (d *device) is(with []byte, invert bool) bool {
	if d.given || len(with) > unix.IFNAMSIZ {
		return false
	}
	end := bytes.IndexByte(with, 0)
	*d = device{true, xt.Interface{Name: with, Begins: end < 0, Invert: invert}}
	if end >= 0 {
		d.Name = with[:end]
	}
	return end < 0 || zero(with[end:])
}

func (r *rule) marked(f *field, with []byte, invert bool) bool {
	if len(with) != 4 {
		return false
	}
	var info [12]byte // struct xt_mark_mtinfo1: mark, mask, invert
	copy(info[:], with)
	binary.NativeEndian.PutUint32(info[4:], 0xffffffff)
	if f.masked {
		copy(info[4:], f.mask[:4])
	}
	if invert {
		info[8] = 1
	}
	return r.words(xt.Extension{Name: "mark", Revision: 1, Info: info[:]})
}

// between decodes a comparison with a range of ports.
func (r *rule) between(data []byte) bool {
	var op uint32
	var from, to []byte
	f, ok := r.reg, true
	r.reg = field{}
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		switch a.Type {
		case unix.NFTA_RANGE_SREG:
			ok = isNumber(a.Data, f.number)
		case unix.NFTA_RANGE_OP:
			op, ok = number(a.Data)
		case unix.NFTA_RANGE_FROM_DATA:
			from, ok = value(a.Data)
		case unix.NFTA_RANGE_TO_DATA:
			to, ok = value(a.Data)
		default:
			ok = false
		}
	}
	return ok && !a.Bad && (op == unix.NFT_RANGE_EQ || op == unix.NFT_RANGE_NEQ) && r.port(&f, from, to, op == unix.NFT_RANGE_NEQ)
}

// port records a test of a port in the form of the match of x_tables that iptables-save prints.
func (r *rule) port(f *field, first, last []byte, invert bool) bool {
	p := &r.ports
	if f.masked || len(first) != 2 || len(last) != 2 || p.closed {
		return false
	}
	if !p.open {
		*p = ports{open: true}
		binary.NativeEndian.PutUint16(p.info[2:], 0xffff)
		binary.NativeEndian.PutUint16(p.info[6:], 0xffff)
	}
	// struct xt_tcp and xt_udp: two ranges and, at different offsets, the flags of inverted tests
	at, bit, invertAt := 0, byte(1), 8
	switch {
	case f.what == destPort && !p.dest:
		at, bit, p.dest = 4, 2, true
	case f.what != sourcePort || p.dest:
		return false
	}
	if r.protocol.number == unix.IPPROTO_TCP {
		invertAt = 11
	}
	if binary.NativeEndian.Uint16(p.info[at:]) != 0 || binary.NativeEndian.Uint16(p.info[at+2:]) != 0xffff { // already set
		return false
	}
	binary.NativeEndian.PutUint16(p.info[at:], binary.BigEndian.Uint16(first))
	binary.NativeEndian.PutUint16(p.info[at+2:], binary.BigEndian.Uint16(last))
	if invert {
		p.info[invertAt] |= bit
	}
	return true
}

// closePorts prints the match of ports that is being assembled.
func (r *rule) closePorts() bool {
	p := &r.ports
	if !p.open {
		return true
	}
	p.open, p.closed = false, true
	kind, size := "tcp", 12
	if r.protocol.number == unix.IPPROTO_UDP {
		kind, size = "udp", 10
	}
	return r.append(xt.Extension{Name: kind, Info: p.info[:size]})
}

// words prints a match, after any pending match of ports.
func (r *rule) words(e xt.Extension) bool { return r.closePorts() && r.append(e) }

func (r *rule) append(e xt.Extension) (ok bool) {
	r.extension = e // a field of rule, to avoid an allocation
	r.extension.Family = r.family
	r.matches, ok = xt.AppendMatch(r.matches, &r.extension)
	return ok
}
