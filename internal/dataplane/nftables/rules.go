package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// rule is a row of expressions; parts of rules are rules too.
type rule = []nft.Expr

// lang writes parts of rules in the way of one address family.
type lang struct {
	f    nft.Family
	addr int // register words of an address
}

func langOf(f model.Family) lang { return lang{f: nftFamily(f), addr: addrLen(f) / 4} }

// Scratch registers, clear of every key that is loaded at word 0.
const (
	hashWord = 8 // source address to hash
	dataWord = 4 // the endpoint that a client met, behind the client's address
)

// frontend loads what a Frontend's pool is found by.
func (l lang) frontend(f front) (rule, int) {
	switch f {
	case byNodePort:
		return nft.L4Port()
	case byRange: // an address has one range of a protocol, so the port is not needed
		return rule{nft.DestAddr(l.f, nft.Word(0)), nft.MetaL4Proto(nft.Word(l.addr))}, l.addr + 1
	}
	return nft.VIP(l.f)
}

// dnat sends the packet to the endpoint at word 0; without port it keeps its own.
func (l lang) dnat(port bool) nft.Expr {
	spec := nft.NATSpec{Family: l.f, Addr: nft.Word(0)}
	if port {
		spec.Proto = nft.Word(l.addr)
	}
	return nft.DNAT(spec)
}

func lookup(set string) nft.Expr { return nft.LookupMap(set, nft.Word(0), nft.Word(0)) }

// translated matches packets whose destination we (or somebody) rewrote.
func translated() rule {
	return rule{nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), ctStatusDNAT), nft.NotEqual(nft.Word(0), nft.HostU32(0))}
}

// translatedNow matches the one packet of a flow whose destination was rewritten on
// its way to this hook. The next ones, a SYN that was sent again among them, belong
// to a flow that left the node before: the kernel calls it confirmed.
func translatedNow() rule {
	return rule{nft.Ct(unix.NFT_CT_STATUS, nft.Word(0)), nft.KeepBits(nft.Word(0), ctStatusDNAT|ctStatusConfirmed),
		nft.Equal(nft.Word(0), nft.HostU32(ctStatusDNAT))}
}

const (
	ctStatusConfirmed = 8
	ctStatusDNAT      = 0x20
)

// isProto matches a protocol. The counter keeps nft from dropping the match when
// it lists a rule that implies it; without it the listing cannot be loaded
// again (nftables.md E3).
func isProto(p model.Protocol) rule {
	return rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{byte(p)}), nft.CountPackets()}
}

// fromPod matches, or with not its opposite, what the detector calls local. It
// reports false if nothing is a pod. The node's own packets have no input device,
// so they are never pods to the interface modes.
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
