package nftsave

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Constants of nf_tables.h that golang.org/x/sys/unix lacks.
const (
	msgDestroyChain     = 27
	msgDestroyRule      = 28
	msgDestroyFlowtable = 32
)

// take handles one message of a commit. The last message of each commit is NFT_MSG_NEWGEN.
func (l *Listener) take(m netlink.Message, told func(Commit)) {
	kind := m.Type & 0xff
	switch {
	case m.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Body) < generic:
		l.now.Opaque = true
	case kind != unix.NFT_MSG_NEWGEN:
		l.note(kind, m)
	default:
		// A commit without a generation is reported as unknown, as is one out of order.
		l.now.Generation = generationOf(m)
		if l.now.Generation == 0 || after(l.now.Generation, l.since) {
			told(l.now)
		}
		l.now = Commit{Places: l.now.Places[:0]}
	}
}

// after reports whether generation a is later than b. Generations wrap around.
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

// note records what a message may have changed: for a chain of iptables' tables, the chain.
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

// about is the object that a message names.
type about struct {
	table, chain []byte
	hook         bool // the chain has a hook; meaningless for a rule
}

func aboutOf(kind uint16, m netlink.Message) (b about, ok bool) {
	named := uint16(unix.NFTA_RULE_CHAIN)
	if kind == unix.NFT_MSG_NEWCHAIN || kind == unix.NFT_MSG_DELCHAIN || kind == msgDestroyChain {
		named = unix.NFTA_CHAIN_NAME
	}
	a := netlink.Attrs{Rest: body(m)}
	for a.Next() {
		switch {
		case a.Type == unix.NFTA_RULE_TABLE: // attribute 1 in all messages that name a table
			b.table = name(a.Data)
		case a.Type == named:
			b.chain = name(a.Data)
		case a.Type == unix.NFTA_CHAIN_HOOK:
			b.hook = true
		}
	}
	return b, !a.Bad && len(b.table) > 0
}

// isChain reports whether a message means that only the chain that it names has changed.
// A renamed chain does not qualify: rules of other chains that jump to it now print its new name. Its
// message equals that of a new chain except for NLM_F_EXCL, which the kernel rejects for an
// existing chain (nf_tables_newchain). No rule jumps to a chain with a hook.
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

// place adds a chain. The messages of one chain are consecutive.
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
