package nftsave

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// iptables-nft translates each part of a rule into expressions of nf_tables. The head of a rule
// (addresses, interfaces, protocol), ports of TCP and UDP and the mark become a load into a
// register and a comparison with it. Other matches and targets are those of x_tables, in
// expressions that wrap them. Verdicts are immediate. The names below are those of
// include/uapi/linux/netfilter/nf_tables.h and nf_tables_compat.h.

// rule is the state of the decoder of one rule's expressions. It is reused for
// each rule.
type rule struct {
	family xt.Family

	reg            field // the content of the register
	source, dest   address
	input, output  device
	protocol       protocol
	ports          ports
	matches, leads []byte // printed text
	to             []byte // target of the jump or goto; nil: none
	done           bool   // the verdict or target has been decoded
	extension      xt.Extension
}

// address is a test of the source or destination.
type address struct {
	given, invert bool
	bytes, mask   [16]byte
}

// device is a test of an interface's name.
type device struct {
	given bool
	xt.Interface
}

type protocol struct {
	given, invert bool
	number        uint8
}

// ports is a match of TCP or UDP in the form of x_tables: iptables writes the tests of source
// and destination next to each other, and prints them in that order.
type ports struct {
	open, closed bool // being assembled; complete and printed
	dest         bool // the destination's test has been decoded
	info         [12]byte
}

func (r *rule) reset(f xt.Family) {
	*r = rule{family: f, matches: r.matches[:0], leads: r.leads[:0]}
}

// read decodes the expressions of a rule. It returns false if it cannot decode one of them.
func (r *rule) read(expressions []byte) bool {
	list := netlink.Attrs{Rest: expressions}
	for list.Next() {
		kind, data := expression(list.Data)
		if !r.takes(kind, data) {
			return false
		}
	}
	return !list.Bad && r.closePorts()
}

// expression returns the kind of an expression, nil for a malformed one, and its data.
func expression(b []byte) (kind, data []byte) {
	a := netlink.Attrs{Rest: b}
	for a.Next() {
		switch a.Type {
		case unix.NFTA_EXPR_NAME:
			kind = name(a.Data)
		case unix.NFTA_EXPR_DATA:
			data = a.Data
		}
	}
	if a.Bad {
		return nil, nil
	}
	return kind, data
}

func (r *rule) takes(kind, data []byte) bool {
	if string(kind) == "counter" {
		return true
	}
	if r.done { // iptables writes no expression after it
		return false
	}
	switch string(kind) {
	case "cmp":
		return r.compare(data)
	case "meta":
		return r.meta(data)
	case "payload":
		return r.payload(data)
	case "match":
		return r.match(data)
	case "target":
		return r.target(data)
	case "immediate":
		return r.verdict(data)
	case "bitwise":
		return r.bitwise(data)
	case "range":
		return r.between(data)
	}
	return false
}

// appendTo appends the rule as iptables-save prints it after "-A CHAIN".
func (r *rule) appendTo(dst []byte) ([]byte, bool) {
	size, ok := r.addressSize(), true
	for _, a := range [...]struct {
		letter byte
		*address
	}{{'s', &r.source}, {'d', &r.dest}} {
		if a.given && ok {
			dst, ok = xt.AppendAddress(dst, a.letter, xt.Address{Addr: a.bytes[:size], Mask: a.mask[:size], Invert: a.invert})
		}
	}
	for _, d := range [...]struct {
		letter byte
		*device
	}{{'i', &r.input}, {'o', &r.output}} {
		if d.given && ok {
			dst, ok = xt.AppendInterface(dst, d.letter, d.Interface)
		}
	}
	if r.protocol.given && ok {
		dst, ok = xt.AppendProtocol(dst, uint16(r.protocol.number), r.protocol.invert)
	}
	return append(append(dst, r.matches...), r.leads...), ok
}

func (r *rule) addressSize() int {
	if r.family == xt.IPv6 {
		return 16
	}
	return 4
}
