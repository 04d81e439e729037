package nftsave

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// carried decodes an expression that wraps a match or target of x_tables: both have
// name, revision and info under the same numbers (NFTA_MATCH_*, NFTA_TARGET_*). It rejects
// an expression after an unused register, which would be lost.
func (r *rule) carried(data []byte) (e xt.Extension, ok bool) {
	ok = r.reg.what == nothing
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		switch a.Type {
		case unix.NFTA_MATCH_NAME:
			e.Name = xt.Name(name(a.Data))
		case unix.NFTA_MATCH_REV:
			var n uint32
			n, ok = number(a.Data)
			ok = ok && n <= 0xff
			e.Revision = uint8(n)
		case unix.NFTA_MATCH_INFO:
			e.Info = a.Data
		default:
			ok = false
		}
	}
	return e, ok && !a.Bad
}

func (r *rule) match(data []byte) bool {
	e, ok := r.carried(data)
	return ok && r.words(e)
}

func (r *rule) target(data []byte) (ok bool) {
	r.extension, ok = r.carried(data)
	if !ok {
		return false
	}
	r.done = true
	r.extension.Family = r.family
	r.leads, ok = xt.AppendTarget(r.leads, &r.extension)
	return ok
}

// Verdicts in the numbering of nf_tables (NF_ACCEPT, NFT_JUMP and the others).
const (
	drop    = 0
	accept  = 1
	jump    = -3
	goTo    = -4
	returns = -5
)

// verdict decodes NFTA_IMMEDIATE_DATA with NFTA_DATA_VERDICT. Its only register is the
// verdict register.
func (r *rule) verdict(data []byte) bool {
	var to []byte
	var code int32
	ok, some := r.reg.what == nothing, false
	a := netlink.Attrs{Rest: data}
	for ok && a.Next() {
		switch a.Type {
		case unix.NFTA_IMMEDIATE_DREG:
			ok = isNumber(a.Data, unix.NFT_REG_VERDICT)
		case unix.NFTA_IMMEDIATE_DATA:
			code, to, ok = decide(a.Data)
			some = ok
		default:
			ok = false
		}
	}
	r.done = true
	return ok && some && !a.Bad && r.leadsTo(code, to)
}

func decide(data []byte) (code int32, to []byte, ok bool) {
	outer := netlink.Attrs{Rest: data}
	if !outer.Next() || outer.Type != unix.NFTA_DATA_VERDICT || len(outer.Rest) > 0 {
		return 0, nil, false
	}
	a := netlink.Attrs{Rest: outer.Data}
	for a.Next() {
		switch a.Type {
		case unix.NFTA_VERDICT_CODE:
			var n uint32
			n, ok = number(a.Data)
			code = int32(n)
		case unix.NFTA_VERDICT_CHAIN:
			to = name(a.Data)
		default:
			return 0, nil, false
		}
	}
	return code, to, ok && !a.Bad
}

func (r *rule) leadsTo(code int32, to []byte) bool {
	words := ""
	switch code {
	case drop:
		words = " -j DROP"
	case accept:
		words = " -j ACCEPT"
	case returns:
		words = " -j RETURN"
	case jump:
		words = " -j "
	case goTo:
		words = " -g "
	default:
		return false
	}
	leads := code == jump || code == goTo
	if leads != (len(to) > 0) || bytes.ContainsAny(to, " \n") {
		return false
	}
	r.to = to
	r.leads = append(append(r.leads, words...), to...)
	return true
}

// leadsToOne reports whether a rule, whatever its other expressions, jumps or goes to an owned chain.
func leadsToOne(expressions []byte, ours func(string) bool) bool {
	list := netlink.Attrs{Rest: expressions}
	for list.Next() {
		kind, data := expression(list.Data)
		if string(kind) != "immediate" {
			continue
		}
		for a := (netlink.Attrs{Rest: data}); a.Next(); {
			if a.Type != unix.NFTA_IMMEDIATE_DATA {
				continue
			}
			if _, to, ok := decide(a.Data); ok && len(to) > 0 && ours(string(to)) {
				return true
			}
		}
	}
	return list.Bad
}
