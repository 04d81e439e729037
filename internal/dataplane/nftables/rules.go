package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// rule is a sequence of expressions; a part of a rule is a rule too.
type rule = []nft.Expr

// lang writes parts of rules for one address family.
type lang struct {
	f    nft.Family
	addr int // register words of an address
}

func langOf(f model.Family) lang { return lang{f: nftFamily(f), addr: addrLen(f) / 4} }

// Scratch registers that no key loaded at word 0 reaches.
const (
	hashWord = 8 // source address to hash
	dataWord = 4 // the endpoint of the client's last connection, after the client's address
)

// frontend loads the key by which a Frontend's pool is looked up.
func (l lang) frontend(f front) (rule, int) {
	switch f {
	case byNodePort:
		return nft.L4Port()
	case byRange: // an address has one range of a protocol, so the port is not needed
		return rule{nft.DestAddr(l.f, nft.Word(0)), nft.MetaL4Proto(nft.Word(l.addr))}, l.addr + 1
	}
	return nft.VIP(l.f)
}

// dnat translates the destination to the endpoint at word 0. Without port the packet keeps its own.
func (l lang) dnat(port bool) nft.Expr {
	spec := nft.NATSpec{Family: l.f, Addr: nft.Word(0)}
	if port {
		spec.Proto = nft.Word(l.addr)
	}
	return nft.DNAT(spec)
}

func lookup(set string) nft.Expr { return nft.LookupMap(set, nft.Word(0), nft.Word(0)) }

// translated matches packets whose destination the agent or another program rewrote.
func translated() rule {
	return rule{nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), ctStatusDNAT), nft.NotEqual(nft.Word(0), nft.HostU32(0))}
}

// translatedNow matches the one packet of a flow whose destination was rewritten on
// its way to this hook. Later packets, retransmitted SYNs among them, belong to a flow
// that has left the node before: the kernel calls it confirmed.
func translatedNow() rule {
	return rule{nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), ctStatusDNAT|ctStatusConfirmed),
		nft.Equal(nft.Word(0), nft.HostU32(ctStatusDNAT))}
}

const (
	ctStatusConfirmed = 8
	ctStatusDNAT      = 0x20
)

// isProto matches a protocol. The counter keeps nft from omitting the match when
// it lists a rule that implies it. Without the match the listing cannot be loaded
// again (nftables.md E3).
func isProto(p model.Protocol) rule {
	return rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{byte(p)}), nft.CountPackets()}
}

// fromPod matches packets that the detector calls local, or with not all others. It
// reports false if no packet is a pod's. The node's own packets have no input device,
// so the interface modes never take them for a pod's.
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

func inputDevice(name []byte, not bool) rule {
	test := nft.Equal
	if not {
		test = nft.NotEqual
	}
	return rule{nft.Meta(unix.NFT_META_IIFNAME, nft.Word(0)), test(nft.Word(0), name)}
}
