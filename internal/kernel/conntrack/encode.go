package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	headerLen = unix.SizeofNlMsghdr
	nfgenLen  = 4
)

// encoder appends netlink messages to a buffer.
type encoder struct{ b []byte }

// header is the variable part of a message's headers.
type header struct {
	typ, flags uint16
	seq        uint32
	family     Family
}

// message appends one message; body appends its attributes.
func (e *encoder) message(h header, body func()) {
	at := len(e.b)
	e.b = binary.NativeEndian.AppendUint32(e.b, 0) // length, below
	e.b = binary.NativeEndian.AppendUint16(e.b, h.typ)
	e.b = binary.NativeEndian.AppendUint16(e.b, h.flags|unix.NLM_F_REQUEST)
	e.b = binary.NativeEndian.AppendUint32(e.b, h.seq)
	e.b = binary.NativeEndian.AppendUint32(e.b, 0)
	e.b = append(e.b, byte(h.family), unix.NFNETLINK_V0, 0, 0)
	body()
	binary.NativeEndian.PutUint32(e.b[at:], uint32(len(e.b)-at))
}

func (e *encoder) attr(typ uint16, data ...byte) {
	e.b = binary.NativeEndian.AppendUint16(e.b, uint16(4+len(data)))
	e.b = binary.NativeEndian.AppendUint16(e.b, typ)
	e.b = append(e.b, data...)
	for len(e.b)%4 != 0 {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) nest(typ uint16, body func()) {
	at := len(e.b)
	e.attr(typ | unix.NLA_F_NESTED)
	body()
	binary.NativeEndian.PutUint16(e.b[at:], uint16(len(e.b)-at))
}

func (e *encoder) be16(typ, v uint16) { e.attr(typ, byte(v>>8), byte(v)) }

func (e *encoder) be32(typ uint16, v uint32) { e.attr(typ, binary.BigEndian.AppendUint32(nil, v)...) }

func (e *encoder) addr(v4, v6 uint16, a netip.Addr) {
	switch {
	case a.Is4():
		b := a.As4()
		e.attr(v4, b[:]...)
	case a.IsValid():
		b := a.As16()
		e.attr(v6, b[:]...)
	}
}

// tuple appends the nonzero fields of one direction.
func (e *encoder) tuple(typ uint16, proto uint8, t Tuple, zone func()) {
	e.nest(typ, func() {
		if t.Src.Addr().IsValid() || t.Dst.Addr().IsValid() {
			e.nest(ctaTupleIP, func() {
				e.addr(ctaIPv4Src, ctaIPv6Src, t.Src.Addr())
				e.addr(ctaIPv4Dst, ctaIPv6Dst, t.Dst.Addr())
			})
		}
		e.nest(ctaTupleProto, func() {
			e.attr(ctaProtoNum, proto)
			if t.Src.Port() != 0 {
				e.be16(ctaProtoSrc, t.Src.Port())
			}
			if t.Dst.Port() != 0 {
				e.be16(ctaProtoDst, t.Dst.Port())
			}
		})
		if zone != nil {
			zone()
		}
	})
}

// dump appends the request for the flows of a filter.
func (e *encoder) dump(f *Filter, seq uint32) {
	e.message(header{msgGet, unix.NLM_F_DUMP, seq, f.Family}, func() {
		if f.Unanswered { // a kernel without this filter returns all flows
			e.be32(ctaStatus, 0)
			e.be32(ctaStatusMask, statusSeenReply)
		}
		if f.Protocol == 0 {
			return
		}
		// The kernel's comparison of IPv6 addresses is inverted (it drops equal
		// addresses; seen on 6.18). For IPv6 the kernel compares only the
		// ports, and Filter.Matches the addresses.
		v4 := f.Family == IPv4
		orig := Tuple{Dst: netip.AddrPortFrom(f.OrigDst, f.OrigPort)}
		reply := Tuple{Src: netip.AddrPortFrom(f.ReplySrc, f.ReplyPort)}
		origFlags := filterProto | bit(v4 && f.OrigDst.IsValid(), filterIPDst) | bit(f.OrigPort != 0, filterPortDst)
		replyFlags := bit(v4 && f.ReplySrc.IsValid(), filterIPSrc) | bit(f.ReplyPort != 0, filterPortSrc)
		e.tuple(ctaTupleOrig, f.Protocol, orig, nil)
		if replyFlags != 0 {
			replyFlags |= filterProto // the kernel rejects ports without a protocol
			e.tuple(ctaTupleReply, f.Protocol, reply, nil)
		}
		e.nest(ctaFilter, func() {
			e.attr(ctaFilterOrig, binary.NativeEndian.AppendUint32(nil, origFlags)...)
			if replyFlags != 0 {
				e.attr(ctaFilterReply, binary.NativeEndian.AppendUint32(nil, replyFlags)...)
			}
		})
	})
}

func bit(on bool, b uint32) uint32 {
	if on {
		return b
	}
	return 0
}

// remove appends the request to delete one flow. The kernel compares the ID, so
// a newer flow with the same tuple is kept.
func (e *encoder) remove(x *Flow, flags uint16, seq uint32) {
	e.message(header{msgDelete, flags, seq, x.Family}, func() {
		var zone func()
		if x.Zone != 0 && x.zoneInTuple {
			zone = func() { e.be16(ctaTupleZone, x.Zone) }
		}
		e.tuple(ctaTupleOrig, x.Protocol, x.Orig, zone)
		e.be32(ctaID, x.ID)
		if x.Zone != 0 && !x.zoneInTuple {
			e.be16(ctaZone, x.Zone)
		}
	})
}
