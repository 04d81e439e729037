package nftsave

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// carried reads an expression that carries a match or target of x_tables: both have
// name, revision and info under the same numbers (NFTA_MATCH_*, NFTA_TARGET_*). A register
// that was loaded before it would be lost.
func (r *rule) carried(data []byte) (e xt.Extension, ok bool) {
	ok = r.reg.what == nothing
	a := attrs{rest: data}
	for ok && a.next() {
		switch a.typ {
		case unix.NFTA_MATCH_NAME:
			e.Name = known(name(a.data))
		case unix.NFTA_MATCH_REV:
			var n uint32
			n, ok = number(a.data)
			ok = ok && n <= 0xff
			e.Revision = uint8(n)
		case unix.NFTA_MATCH_INFO:
			e.Info = a.data
		default:
			ok = false
		}
	}
	return e, ok && !a.bad
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

// known gives the name as a constant, so that no string is made for each rule.
func known(kind []byte) string {
	for _, k := range [...]string{"DNAT", "statistic", "comment", "recent", "MARK", "MASQUERADE", "REJECT", "conntrack", "addrtype",
		"sctp", "cluster", "nfacct", "mark", "tcp", "udp"} {
		if string(kind) == k {
			return k
		}
	}
	return ""
}

// Verdicts as nf_tables numbers them (NF_ACCEPT, NFT_JUMP and their like).
const (
	drop    = 0
	accept  = 1
	jump    = -3
	goTo    = -4
	returns = -5
)

// verdict reads NFTA_IMMEDIATE_DATA with NFTA_DATA_VERDICT, which is loaded into no
// register but the verdict's own.
func (r *rule) verdict(data []byte) bool {
	var to []byte
	var code int32
	ok, some := r.reg.what == nothing, false
	a := attrs{rest: data}
	for ok && a.next() {
		switch a.typ {
		case unix.NFTA_IMMEDIATE_DREG:
			ok = isNumber(a.data, unix.NFT_REG_VERDICT)
		case unix.NFTA_IMMEDIATE_DATA:
			code, to, ok = decide(a.data)
			some = ok
		default:
			ok = false
		}
	}
	r.done = true
	return ok && some && !a.bad && r.leadsTo(code, to)
}

func decide(data []byte) (code int32, to []byte, ok bool) {
	outer := attrs{rest: data}
	if !outer.next() || outer.typ != unix.NFTA_DATA_VERDICT || len(outer.rest) > 0 {
		return 0, nil, false
	}
	a := attrs{rest: outer.data}
	for a.next() {
		switch a.typ {
		case unix.NFTA_VERDICT_CODE:
			var n uint32
			n, ok = number(a.data)
			code = int32(n)
		case unix.NFTA_VERDICT_CHAIN:
			to = name(a.data)
		default:
			return 0, nil, false
		}
	}
	return code, to, ok && !a.bad
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

// leadsToOne tells whether a rule, of whatever it is made, jumps or goes to a chain of those.
func leadsToOne(expressions []byte, ours func(string) bool) bool {
	list := attrs{rest: expressions}
	for list.next() {
		kind, data := expression(list.data)
		if string(kind) != "immediate" {
			continue
		}
		for a := (attrs{rest: data}); a.next(); {
			if a.typ != unix.NFTA_IMMEDIATE_DATA {
				continue
			}
			if _, to, ok := decide(a.data); ok && len(to) > 0 && ours(string(to)) {
				return true
			}
		}
	}
	return list.bad
}
