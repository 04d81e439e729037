package nft

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// The decoders read the kernel's dumps and also, because the formats are the same, the messages of a Batch (for the Fake).

func decodeTable(f Family, attrs []byte) Table {
	t := Table{Ref: TableRef{Family: f}}
	netlink.EachAttr(attrs, func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_TABLE_NAME:
			t.Ref.Name = string(cstr(d))
		case unix.NFTA_TABLE_FLAGS:
			t.Flags = TableFlags(be32(d))
		case unix.NFTA_TABLE_USE:
			t.Use = be32(d)
		case nftaTableHandle:
			t.Handle = be64(d)
		case nftaTableUserdata:
			t.UserData = bytes.Clone(d)
		case nftaTableOwner:
			t.Owner = be32(d)
		}
	})
	return t
}

func decodeSet(f Family, attrs []byte) Set {
	s := Set{Ref: SetRef{Table: TableRef{Family: f}}}
	netlink.EachAttr(attrs, func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_SET_TABLE:
			s.Ref.Table.Name = string(cstr(d))
		case unix.NFTA_SET_NAME:
			s.Ref.Name = string(cstr(d))
		case unix.NFTA_SET_FLAGS:
			s.Flags = SetFlags(be32(d))
		case unix.NFTA_SET_KEY_TYPE:
			s.KeyType = be32(d)
		case unix.NFTA_SET_KEY_LEN:
			s.KeyLen = be32(d)
		case unix.NFTA_SET_DATA_TYPE:
			s.DataType = be32(d)
		case unix.NFTA_SET_DATA_LEN:
			s.DataLen = be32(d)
		case unix.NFTA_SET_TIMEOUT:
			s.Timeout = duration(d)
		case nftaSetCount:
			s.Count, s.Counted = be32(d), true
		case nftaSetHandle:
			s.Handle = be64(d)
		case unix.NFTA_SET_USERDATA:
			s.UserData = bytes.Clone(d)
		case unix.NFTA_SET_DESC:
			s.Size, s.Fields = decodeSetDesc(d)
		}
	})
	return s
}

func decodeSetDesc(d []byte) (size uint32, fields []uint8) {
	netlink.EachAttr(d, func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_SET_DESC_SIZE:
			size = be32(d)
		case nftaSetDescConcat:
			netlink.EachAttr(d, func(_ uint16, d []byte) {
				netlink.EachAttr(d, func(typ uint16, d []byte) {
					if typ == nftaSetFieldLen {
						fields = append(fields, uint8(be32(d)))
					}
				})
			})
		}
	})
	return size, fields
}

func decodeChain(f Family, attrs []byte) Chain {
	c := Chain{Ref: ChainRef{Table: TableRef{Family: f}}}
	var h Hook
	netlink.EachAttr(attrs, func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_CHAIN_TABLE:
			c.Ref.Table.Name = string(cstr(d))
		case unix.NFTA_CHAIN_NAME:
			c.Ref.Name = string(cstr(d))
		case unix.NFTA_CHAIN_HANDLE:
			c.Handle = be64(d)
		case unix.NFTA_CHAIN_USE:
			c.Use = be32(d)
		case nftaChainFlags:
			c.Flags = be32(d)
		case nftaChainUserdata:
			c.UserData = bytes.Clone(d)
		case unix.NFTA_CHAIN_TYPE:
			h.Type = string(cstr(d))
		case unix.NFTA_CHAIN_POLICY:
			h.Policy = Policy(be32(d))
		case unix.NFTA_CHAIN_HOOK:
			c.Hook = &h
			decodeHook(d, &h)
		}
	})
	return c
}

func decodeHook(d []byte, h *Hook) {
	netlink.EachAttr(d, func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_HOOK_HOOKNUM:
			h.Num = HookNum(be32(d))
		case unix.NFTA_HOOK_PRIORITY:
			h.Priority = int32(be32(d))
		case unix.NFTA_HOOK_DEV:
			h.Device = string(cstr(d))
		}
	})
}

func decodeRule(f Family, attrs []byte) Rule {
	r := Rule{Chain: ChainRef{Table: TableRef{Family: f}}}
	netlink.EachAttr(attrs, func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_RULE_TABLE:
			r.Chain.Table.Name = string(cstr(d))
		case unix.NFTA_RULE_CHAIN:
			r.Chain.Name = string(cstr(d))
		case unix.NFTA_RULE_HANDLE:
			r.Handle = be64(d)
		case unix.NFTA_RULE_EXPRESSIONS:
			r.Exprs = bytes.Clone(d)
		case unix.NFTA_RULE_USERDATA:
			r.UserData = bytes.Clone(d)
		}
	})
	return r
}

// duration decodes a 64-bit count of milliseconds.
func duration(d []byte) time.Duration { return time.Duration(be64(d)) * time.Millisecond }
