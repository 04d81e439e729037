package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// decodeFlow decodes the body of one message of a dump; ok is false if an address is missing.
func decodeFlow(body []byte) (x Flow, ok bool) {
	if len(body) < nfgenLen {
		return x, false
	}
	x.Family = Family(body[0])
	netlink.EachAttr(body[nfgenLen:], func(typ uint16, d []byte) {
		switch typ {
		case ctaTupleOrig:
			x.Orig = x.decodeTuple(d, true)
		case ctaTupleReply:
			x.Reply = x.decodeTuple(d, false)
		case ctaStatus:
			if len(d) >= 4 {
				status := binary.BigEndian.Uint32(d)
				x.Replied, x.Offloaded = status&statusSeenReply != 0, status&statusOffload != 0
			}
		case ctaCountOrig, ctaCountReply:
			x.count(d)
		case ctaID:
			if len(d) >= 4 {
				x.ID = binary.BigEndian.Uint32(d) // opaque: sent back unchanged
			}
		case ctaZone:
			x.Zone = be16(d)
		case ctaProtoInfo:
			x.Open = tcpIsOpen(d)
		}
	})
	return x, x.Orig.Dst.IsValid() && x.Reply.Src.IsValid()
}

// count adds the counters of one direction.
func (x *Flow) count(counters []byte) {
	netlink.EachAttr(counters, func(typ uint16, d []byte) {
		switch {
		case len(d) < 8:
		case typ == ctaCountPackets:
			x.Packets += binary.BigEndian.Uint64(d)
		case typ == ctaCountBytes:
			x.Bytes += binary.BigEndian.Uint64(d)
		}
	})
}

// tcpIsOpen reports whether the state of a TCP connection is Open.
func tcpIsOpen(protoInfo []byte) (open bool) {
	netlink.EachAttr(protoInfo, func(typ uint16, d []byte) {
		if typ != ctaProtoInfoTCP {
			return
		}
		netlink.EachAttr(d, func(typ uint16, d []byte) {
			if typ == ctaProtoInfoTCPState && len(d) > 0 {
				open = d[0] != tcpSynSent && d[0] != tcpClose
			}
		})
	})
	return open
}

func (x *Flow) decodeTuple(b []byte, orig bool) Tuple {
	var src, dst netip.Addr
	var sport, dport uint16
	netlink.EachAttr(b, func(typ uint16, d []byte) {
		switch typ {
		case ctaTupleIP:
			netlink.EachAttr(d, func(typ uint16, d []byte) {
				a, ok := netip.AddrFromSlice(d)
				switch {
				case !ok:
				case typ == ctaIPv4Src || typ == ctaIPv6Src:
					src = a
				case typ == ctaIPv4Dst || typ == ctaIPv6Dst:
					dst = a
				}
			})
		case ctaTupleProto:
			netlink.EachAttr(d, func(typ uint16, d []byte) {
				switch {
				case typ == ctaProtoNum && len(d) > 0:
					x.Protocol = d[0]
				case typ == ctaProtoSrc:
					sport = be16(d)
				case typ == ctaProtoDst:
					dport = be16(d)
				}
			})
		case ctaTupleZone:
			if orig {
				x.Zone, x.zoneInTuple = be16(d), true
			}
		}
	})
	return Tuple{Src: netip.AddrPortFrom(src, sport), Dst: netip.AddrPortFrom(dst, dport)}
}

func be16(d []byte) uint16 {
	if len(d) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(d)
}
