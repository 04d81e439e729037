package ipvs

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"net/netip"

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

// inside matches addresses in a prefix.
func (l lang) inside(load nft.Expr, p netip.Prefix) rule {
	n := l.f.AddrLen()
	mask, zero := make([]byte, n), make([]byte, n)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return rule{load, nft.Bitwise(nft.Word(0), nft.Word(0), mask, zero), nft.Equal(nft.Word(0), nft.AppendAddr(nil, p.Masked().Addr()))}
}

// markBits returns the mark that requests masquerade in postrouting.
func markBits(v *model.NodeView) uint32 { return 1 << (v.MasqueradeBit & 31) }

// fromPods returns a rule for each way in which a packet can be a pod's: none if no packet is.
func (l lang) fromPods(v *model.NodeView) []rule {
	device := func(name []byte) []rule {
		return []rule{{nft.Meta(unix.NFT_META_IIFNAME, nft.Word(0)), nft.Equal(nft.Word(0), name)}}
	}
	var out []rule
	switch d := &v.Local; {
	case d.Mode == model.DetectCIDR:
		for _, p := range ofFamily(d.CIDRs, l.f) {
			out = append(out, l.inside(nft.SourceAddr(l.f, nft.Word(0)), p))
		}
	case d.Mode == model.DetectBridgeInterface && d.Interface != "":
		return device(nft.AppendIfName(nil, d.Interface))
	case d.Mode == model.DetectInterfaceNamePrefix && d.Interface != "":
		return device([]byte(d.Interface))
	}
	return out
}

func ofFamily(list []netip.Prefix, f nft.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if nftFamily(model.FamilyOf(p.Addr())) == f {
			out = append(out, p)
		}
	}
	return out
}

// tag returns the comment by which Load recognises a rule, because kernels return expressions in varying forms.
func tag(r rule) []byte {
	h := fnv.New64a()
	for _, e := range r {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(e)))) // a hash never fails
		h.Write(e)
	}
	return nft.Comment(hex.EncodeToString(h.Sum(nil)))
}

// digest returns the digest of the comments of a chain's rules.
func digest(tags [][]byte) string {
	h := fnv.New64a()
	for _, t := range tags {
		h.Write([]byte{byte(len(t))}) // as above
		h.Write(t)
	}
	return hex.EncodeToString(h.Sum([]byte{byte(len(tags))}))
}
