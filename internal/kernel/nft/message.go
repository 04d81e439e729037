package nft

import (
	"encoding/binary"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// nlmsg is one received message with accessors of nftables' fields.
type nlmsg struct{ netlink.Message }

// family and attrs split the body of an nftables message.
func (m nlmsg) family() Family { return Family(m.Body[0]) }
func (m nlmsg) attrs() []byte  { return m.Body[nfgenLen:] }

// isNft reports whether m is an nftables message of a type.
func (m nlmsg) isNft(typ uint16) bool {
	return m.Type == nfnlSubsysNft<<8|typ && len(m.Body) >= nfgenLen
}

// ack is the extended part of an NLMSG_ERROR message.
type ack struct {
	msg    string
	offset int // of the attribute at fault from the start of the message; 0: unknown
}

func (m nlmsg) ack() ack {
	const inner = 4 + nlmsgHdrLen
	if m.Flags&nlmErrorTLVs == 0 || len(m.Body) < inner {
		return ack{}
	}
	rest := m.Body[inner:]
	if m.Flags&nlmErrorCapped == 0 {
		n := align4(int(binary.NativeEndian.Uint32(m.Body[4:])) - nlmsgHdrLen)
		rest = rest[min(max(n, 0), len(rest)):]
	}
	var a ack
	netlink.EachAttr(rest, func(typ uint16, d []byte) {
		switch {
		case typ == nlmsgerrMsg:
			a.msg = string(cstr(d))
		case typ == nlmsgerrOffset && len(d) >= 4:
			a.offset = int(binary.NativeEndian.Uint32(d))
		}
	})
	return a
}
