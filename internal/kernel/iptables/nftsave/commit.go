package nftsave

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// What golang.org/x/sys/unix lacks of nf_tables.h.
const (
	msgDestroyChain     = 27
	msgDestroyRule      = 28
	msgDestroyFlowtable = 32
)

// take notes one message of a commit, the last of which is NFT_MSG_NEWGEN.
func (l *Listener) take(m netlink.Message, told func(Commit)) {
	kind := m.Type & 0xff
	switch {
	case m.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Body) < generic:
		l.now.Opaque = true
	case kind != unix.NFT_MSG_NEWGEN:
		l.note(kind, m)
	default:
		// Of one without a number nothing is known, as of one that comes out of turn.
		l.now.Generation = generationOf(m)
		if l.now.Generation == 0 || after(l.now.Generation, l.since) {
			told(l.now)
		}
		l.now = Commit{Places: l.now.Places[:0]}
	}
}

// after reports whether a generation comes after another one: they are counted round.
func after(a, b uint32) bool { return int32(a-b) > 0 }

func generationOf(m netlink.Message) (generation uint32) {
	a := netlink.Attrs{Rest: body(m)}
	for a.Next() {
		if a.Type == unix.NFTA_GEN_ID && len(a.Data) == 4 {
			generation = binary.BigEndian.Uint32(a.Data)
		}
	}
	return generation
}

// note notes what may have changed: a message about a chain of iptables' tables names it.
func (l *Listener) note(kind uint16, m netlink.Message) {
	a, ok := aboutOf(kind, m)
	family := familyOf(m.Body[0])
	switch {
	case !ok || kind > msgDestroyFlowtable:
		l.now.Opaque = true
	case family == 0 || !isIPTables(string(a.table)):
	case !a.isChain(kind, m.Flags) || len(l.now.Places) >= maxPlaces:
		l.now.Opaque = true
	default:
		l.place(family, a.table, a.chain)
	}
}

// about is what a message is about.
type about struct {
	table, chain []byte
	hook         bool // a chain has one; it means nothing of a rule
}

func aboutOf(kind uint16, m netlink.Message) (b about, ok bool) {
	named := uint16(unix.NFTA_RULE_CHAIN)
	if kind == unix.NFT_MSG_NEWCHAIN || kind == unix.NFT_MSG_DELCHAIN || kind == msgDestroyChain {
		named = unix.NFTA_CHAIN_NAME
	}
	a := netlink.Attrs{Rest: body(m)}
	for a.Next() {
		switch {
		case a.Type == unix.NFTA_RULE_TABLE: // 1 in all that name one
			b.table = name(a.Data)
		case a.Type == named:
			b.chain = name(a.Data)
		case a.Type == unix.NFTA_CHAIN_HOOK:
			b.hook = true
		}
	}
	return b, !a.Bad && len(b.table) > 0
}

// isChain reports whether a message can only mean that the chain that it names has changed.
// That of a renamed chain cannot: rules of others that lead to it say its new name. It looks
// like that of a new one, but for NLM_F_EXCL, which the kernel refuses for a chain that is
// there (nf_tables_newchain). Nothing leads to a chain with a hook.
func (b *about) isChain(kind, flags uint16) bool {
	if len(b.chain) == 0 {
		return false
	}
	switch kind {
	case unix.NFT_MSG_NEWCHAIN:
		return b.hook || flags&unix.NLM_F_EXCL != 0
	case unix.NFT_MSG_DELCHAIN, msgDestroyChain, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, msgDestroyRule:
		return true
	}
	return false
}

// place adds a chain. Messages about one follow each other.
func (l *Listener) place(family xt.Family, table, chain []byte) {
	if n := len(l.now.Places); n > 0 {
		if last := &l.now.Places[n-1]; last.Family == family && last.Table == string(table) && last.Chain == string(chain) {
			return
		}
	}
	l.now.Places = append(l.now.Places, Place{family, string(table), string(chain)})
}

func familyOf(protocol byte) xt.Family {
	switch protocol {
	case unix.NFPROTO_IPV4:
		return xt.IPv4
	case unix.NFPROTO_IPV6:
		return xt.IPv6
	}
	return 0
}

func isIPTables(table string) bool {
	return slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, table)
}
