package nft

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Attributes of flowtables, from linux/netfilter/nf_tables.h.
const (
	nftaFlowtableTable  = 1
	nftaFlowtableName   = 2
	nftaFlowtableHook   = 3
	nftaFlowtableUse    = 4
	nftaFlowtableHandle = 5
	nftaFlowtableFlags  = 7

	nftaFlowtableHookNum      = 1
	nftaFlowtableHookPriority = 2
	nftaFlowtableHookDevs     = 3
	nftaDeviceName            = 1

	flowtableCounter = 2 // NFT_FLOWTABLE_COUNTER
)

// Flowtable is one row of a flowtable dump, and the argument of NewFlowtable.
type Flowtable struct {
	Ref      SetRef // flowtables share the naming of sets: family, table, name
	Priority int32
	Devices  []string // sorted; a row holds the existing ones
	Counter  bool     // update conntrack's counters. Repeat it when adding a device: omitting it switches it off
	Use      uint32   // number of rules that offload to it, in rows only
	Handle   uint64   // in rows only
}

// NewFlowtable adds a flowtable at the ingress hook, or adds devices to an existing one. A missing device is ENOENT.
func (b *Batch) NewFlowtable(f Flowtable) {
	b.begin(OpNewFlowtable, f.Ref.Table.Family)
	b.appendFlowtable(f)
	if f.Counter {
		b.buf = appendU32(b.buf, nftaFlowtableFlags, flowtableCounter)
	}
	b.end()
}

// DelFlowtable deletes a flowtable, EBUSY while a rule uses it; with devices, only those: a missing one is ENOENT.
func (b *Batch) DelFlowtable(ref SetRef, devices ...string) {
	b.begin(OpDelFlowtable, ref.Table.Family)
	if len(devices) > 0 {
		b.appendFlowtable(Flowtable{Ref: ref, Devices: devices})
	} else {
		b.buf = appendString(b.buf, nftaFlowtableTable, ref.Table.Name)
		b.buf = appendString(b.buf, nftaFlowtableName, ref.Name)
	}
	b.end()
}

func (b *Batch) appendFlowtable(f Flowtable) {
	b.buf = appendString(b.buf, nftaFlowtableTable, f.Ref.Table.Name)
	b.buf = appendString(b.buf, nftaFlowtableName, f.Ref.Name)
	var hook, devs int
	b.buf, hook = openNest(b.buf, nftaFlowtableHook)
	b.buf = appendU32(b.buf, nftaFlowtableHookNum, unix.NF_NETDEV_INGRESS)
	b.buf = appendU32(b.buf, nftaFlowtableHookPriority, uint32(f.Priority))
	if len(f.Devices) > 0 {
		b.buf, devs = openNest(b.buf, nftaFlowtableHookDevs)
		for _, d := range f.Devices {
			b.buf = appendString(b.buf, nftaDeviceName, d)
		}
		closeNest(b.buf, devs)
	}
	closeNest(b.buf, hook)
}

// Flowtables returns the flowtables of one table. It is not a part of Kernel: only the offload data plane needs it, and declares
// an interface of its own.
func (c *Conn) Flowtables(ctx context.Context, t TableRef) ([]Flowtable, error) {
	var out []Flowtable
	err := c.dump(ctx, unix.NFT_MSG_GETFLOWTABLE, dumpRequest(t.Family, t.Name), func(m nlmsg) error {
		if f := decodeFlowtable(m.family(), m.attrs()); f.Ref.Table == t {
			out = append(out, f)
		}
		return nil
	})
	if err != nil && !isAbsent(err) {
		return nil, fmt.Errorf("dump flowtables of table %s: %w", t, err)
	}
	return out, nil
}

func decodeFlowtable(f Family, attrs []byte) Flowtable {
	ft := Flowtable{Ref: SetRef{Table: TableRef{Family: f}}}
	netlink.EachAttr(attrs, func(typ uint16, d []byte) {
		switch typ {
		case nftaFlowtableTable:
			ft.Ref.Table.Name = string(cstr(d))
		case nftaFlowtableName:
			ft.Ref.Name = string(cstr(d))
		case nftaFlowtableUse:
			ft.Use = be32(d)
		case nftaFlowtableHandle:
			ft.Handle = be64(d)
		case nftaFlowtableFlags:
			ft.Counter = be32(d)&flowtableCounter != 0
		case nftaFlowtableHook:
			netlink.EachAttr(d, ft.decodeHook)
		}
	})
	slices.Sort(ft.Devices)
	return ft
}

func (ft *Flowtable) decodeHook(typ uint16, d []byte) {
	switch typ {
	case nftaFlowtableHookPriority:
		ft.Priority = int32(be32(d))
	case nftaFlowtableHookDevs:
		netlink.EachAttr(d, func(_ uint16, name []byte) { ft.Devices = append(ft.Devices, string(cstr(name))) })
	}
}
