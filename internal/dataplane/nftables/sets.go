package nftables

import (
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// spec returns the declaration of one of the sets of s in the table of a family.
func (s *setDef) spec(f model.Family, part string, scale int) nft.SetSpec {
	addr := nft.Addr(nftFamily(f))
	endpoint := []nft.Part{addr, nft.Port}
	if s.ident == identAddrProto { // a range keeps the packet's destination port
		endpoint = endpoint[:1]
	}
	out := nft.SetSpec{Ref: tableRef(f).Set(part), Size: s.size(scale)}
	switch s.ident {
	case identAddr:
		out.Key = []nft.Part{addr}
	case identVIP:
		out.Key = []nft.Part{addr, nft.L4Proto, nft.Port}
	case identHairpin:
		out.Key = []nft.Part{addr, addr, nft.L4Proto, nft.Port}
	case identNodePort:
		out.Key = []nft.Part{nft.L4Proto, nft.Port}
	case identAddrProto:
		out.Key = []nft.Part{addr, nft.L4Proto}
	case identPairProto:
		out.Key = []nft.Part{addr, addr, nft.L4Proto}
	case identRange:
		out.Key, out.Flags = []nft.Part{addr, nft.L4Proto, nft.Port}, nft.SetInterval
	}
	switch s.shape {
	case shapeVerdict:
		out.Verdicts = true
	case shapePool:
		// Without typeof nft cannot print the slot (nftables.md E2).
		out.Key, out.Data, out.Typeof = append(out.Key, nft.Slot), endpoint, true
	case shapeRanges:
		out.Key, out.Flags = []nft.Part{addr}, nft.SetInterval
	case shapeAllowed:
		out.Key, out.Flags = append(out.Key, addr), nft.SetInterval
	case shapeLive:
		out.Key = append([]nft.Part{addr, nft.Port}, out.Key...)
	}
	return out
}

// slotWidth returns the size of one endpoint in a pool of this set, in bytes: an address,
// and a port unless the set serves ranges.
func (s *setDef) slotWidth(f model.Family) int {
	if s.ident == identAddrProto {
		return addrLen(f)
	}
	return addrLen(f) + 2
}

// digest returns the value of a set object: the digest of its declaration, without its
// elements and its size.
func (s *setDef) digest(f model.Family) string {
	spec := s.spec(f, s.name, 0)
	return digestOf(&spec)
}

// digestOf returns the digest of a declaration, as the kernel reports it.
func digestOf(spec *nft.SetSpec) string {
	row := spec.Row()
	h := newDigest()
	h.number(uint64(row.Flags), uint64(row.KeyType), uint64(row.DataType), uint64(row.Timeout))
	h.bytes(row.UserData)
	return h.String()
}
