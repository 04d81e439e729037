package iptables

import (
	"bytes"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// printChain emits the requested rules of a chain: all rules of an owned chain; of a built-in
// chain those that jump to an owned chain. line holds the prefix of each emitted line; printChain
// returns it with the last rule appended.
func (e *entries) printChain(line []byte, c *xchain, emit func([]byte) error) ([]byte, error) {
	begin := len(line)
	for at := c.at; at < c.end; {
		n, ok := e.at(at)
		if !ok {
			return line, ErrUnreadable
		}
		next := at + uint32(len(n.bytes))
		if c.ours || e.leadsToOurs(&n) {
			if line, ok = e.appendRule(line[:begin], &n, next); !ok {
				return line, ErrUnreadable
			}
			if err := emit(line); err != nil {
				return line, err
			}
		}
		at = next
	}
	return line, nil
}

func (e *entries) leadsToOurs(n *entry) bool {
	verdict, standard := n.verdict()
	if !standard || verdict < 0 {
		return false
	}
	to := e.chainAt(uint32(verdict))
	return to != nil && to.ours
}

// verdict returns the verdict of a rule whose target is the standard one; false for an extension's target.
func (n *entry) verdict() (int32, bool) {
	b := n.bytes[n.target:]
	if b[extensionName] != 0 || len(b) < extensionHead+4 {
		return 0, false
	}
	return int32(u32(b[extensionHead:])), true
}

// Flags of the tests that a rule inverts (IPT_INV_VIA_IN and the others).
const (
	notFrom      = 1
	notOut       = 2
	notSource    = 8
	notDest      = 16
	notProtocol  = 64
	allInversion = notFrom | notOut | notSource | notDest | notProtocol
)

// appendRule appends what iptables-save prints after "-A CHAIN". next is the offset of the
// next entry.
func (e *entries) appendRule(text []byte, n *entry, next uint32) ([]byte, bool) {
	l, b := &e.layout, n.bytes
	flags, inverted := b[l.flags], b[l.inverted]
	if flags&^(l.goTo|l.protoIsSet) != 0 || inverted&^allInversion != 0 || l.family == xt.IPv6 && b[l.protocol+2] != 0 { // the TOS
		return text, false
	}
	size := l.address
	text, ok := xt.AppendAddress(text, 's', xt.Address{Addr: b[:size], Mask: b[2*size:][:size], Invert: inverted&notSource != 0})
	if ok {
		text, ok = xt.AppendAddress(text, 'd', xt.Address{Addr: b[size:][:size], Mask: b[3*size:][:size], Invert: inverted&notDest != 0})
	}
	names, masks := b[l.interfaces:], b[l.interfaces+32:]
	if ok {
		text, ok = appendInterface(text, 'i', interfaceTest{names[:16], masks[:16], inverted&notFrom != 0})
	}
	if ok {
		text, ok = appendInterface(text, 'o', interfaceTest{names[16:32], masks[16:32], inverted&notOut != 0})
	}
	protocol, isSet := u16(b[l.protocol:]), l.protoIsSet == 0 || flags&l.protoIsSet != 0
	switch {
	case !ok || protocol != 0 != isSet && l.protoIsSet != 0:
		return text, false
	case protocol != 0:
		text, ok = xt.AppendProtocol(text, protocol, inverted&notProtocol != 0)
	default:
		ok = inverted&notProtocol == 0
	}
	if ok {
		text, ok = e.appendMatches(text, n)
	}
	if !ok {
		return text, false
	}
	return e.appendTarget(text, n, next)
}

// interfaceTest is the test of an interface's name, of the bytes that the mask covers.
type interfaceTest struct {
	name, mask []byte
	invert     bool
}

func appendInterface(text []byte, letter byte, t interfaceTest) ([]byte, bool) {
	covered := 0
	for covered < len(t.mask) && t.mask[covered] == 0xff {
		covered++
	}
	for _, m := range t.mask[covered:] {
		if m != 0 {
			return text, false
		}
	}
	length := bytes.IndexByte(t.name, 0)
	switch {
	case covered == 0:
		return text, !t.invert
	case length < 0 || covered > length+1:
		return text, false
	case covered == length+1:
		return xt.AppendInterface(text, letter, xt.Interface{Name: t.name[:length], Invert: t.invert})
	}
	return xt.AppendInterface(text, letter, xt.Interface{Name: t.name[:covered], Begins: true, Invert: t.invert})
}

func (e *entries) appendMatches(text []byte, n *entry) ([]byte, bool) {
	list := n.bytes[e.layout.size:n.target]
	for len(list) > 0 {
		if len(list) < extensionHead {
			return text, false
		}
		size := int(u16(list))
		if size < extensionHead || size > len(list) {
			return text, false
		}
		x := xt.Extension{Family: e.layout.family, Name: xt.Name(field(list[extensionName:extensionRevision])), Revision: list[extensionRevision], Info: list[extensionHead:size]}
		var ok bool
		if text, ok = xt.AppendMatch(text, &x); !ok {
			return text, false
		}
		list = list[size:]
	}
	return text, true
}

func (e *entries) appendTarget(text []byte, n *entry, next uint32) ([]byte, bool) {
	goTo := n.bytes[e.layout.flags]&e.layout.goTo != 0
	verdict, standard := n.verdict()
	switch {
	case !standard && goTo:
		return text, false
	case !standard:
		b := n.bytes[n.target:]
		x := xt.Extension{Family: e.layout.family, Name: xt.Name(n.targetName()), Revision: b[extensionRevision], Info: b[extensionHead:]}
		return xt.AppendTarget(text, &x)
	case verdict < 0 && goTo:
		return text, false
	case verdict < 0:
		return xt.AppendVerdict(text, verdict)
	case uint32(verdict) == next: // the rule continues with the next entry: no target
		return text, !goTo
	}
	to := e.chainAt(uint32(verdict))
	if to == nil || to.builtIn || !to.clean {
		return text, false
	}
	return xt.AppendJump(text, to.name, goTo), true
}
