package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// rule is a list of expressions: a whole rule or a part of one.
type rule = []nft.Expr

// lang builds parts of rules for one address family.
type lang struct {
	f    nft.Family
	addr int // register words of an address
}

// langOf returns the lang of a family.
func langOf(f model.Family) lang { return lang{f: nftFamily(f), addr: addrLen(f) / 4} }

// Scratch registers. They do not overlap any key that is loaded at word 0.
const (
	hashWord = 8 // source address to hash
	dataWord = 4 // the endpoint to store for a client, after the client's address
)

// frontend returns the expressions that load the lookup key of a Frontend's pool, and the
// next free register word.
func (l lang) frontend(f front) (rule, int) {
	switch f {
	case byNodePort:
		return nft.L4Port()
	case byRange: // an address has at most one range per protocol, so the port is not needed
		return rule{nft.DestAddr(l.f, nft.Word(0)), nft.MetaL4Proto(nft.Word(l.addr))}, l.addr + 1
	}
	return nft.VIP(l.f)
}

// dnat returns the expression that translates the destination to the endpoint at word 0.
// Without port the packet keeps its destination port.
func (l lang) dnat(port bool) nft.Expr {
	spec := nft.NATSpec{Family: l.f, Addr: nft.Word(0)}
	if port {
		spec.Proto = nft.Word(l.addr)
	}
	return nft.DNAT(spec)
}

// lookup returns a map lookup of the key at word 0. The result replaces the key.
func lookup(set string) nft.Expr { return nft.LookupMap(set, nft.Word(0), nft.Word(0)) }

// translated returns a match of packets whose destination was rewritten, by the agent's
// rules or by another program's.
func translated() rule {
	return rule{nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), ctStatusDNAT), nft.NotEqual(nft.Word(0), nft.HostU32(0))}
}

// translatedNow returns a match of the first packet of a flow, whose destination was
// rewritten before this hook. Later packets, a retransmitted SYN among them, belong to
// a flow whose first packet has already passed all hooks: the kernel has marked that
// flow as confirmed.
func translatedNow() rule {
	return rule{nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), ctStatusDNAT|ctStatusConfirmed),
		nft.Equal(nft.Word(0), nft.HostU32(ctStatusDNAT))}
}

const (
	ctStatusConfirmed = 8
	ctStatusDNAT      = 0x20
)

// isProto returns a match of a protocol, followed by a counter. Without the counter nft
// omits the match when it lists a rule that implies it, and the listing cannot be loaded
// again (nftables.md E3).
func isProto(p model.Protocol) rule {
	return rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{byte(p)}), nft.CountPackets()}
}

// fromPod returns a match of packets that the detector considers local, or of all others
// if not is set. It returns false if the detector detects no pods. The node's own
// packets have no input device, so the interface modes never consider them local.
func (l lang) fromPod(d *model.LocalDetector, not bool) (rule, bool) {
	if d.Interface == "" && d.Mode != model.DetectCIDR {
		return nil, false
	}
	switch d.Mode {
	case model.DetectCIDR:
		test := nft.InSet
		if not {
			test = nft.NotInSet
		}
		return rule{nft.SourceAddr(l.f, nft.Word(0)), test("pod-cidrs", nft.Word(0))}, true
	case model.DetectBridgeInterface:
		return inputDevice(nft.AppendIfName(nil, d.Interface), not), true
	case model.DetectInterfaceNamePrefix:
		return inputDevice([]byte(d.Interface), not), true
	}
	return nil, false
}

// inputDevice returns a match of the input device's name, or of all other names.
func inputDevice(name []byte, not bool) rule {
	test := nft.Equal
	if not {
		test = nft.NotEqual
	}
	return rule{nft.Meta(unix.NFT_META_IIFNAME, nft.Word(0)), test(nft.Word(0), name)}
}
