package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Where NodeView.CountRefusals is set, a packet that is refused or dropped on its way to a Frontend leaves a count under what it was
// sent to, in a set that packets fill: a packet that is forwarded meets nothing of it, and a Service that comes or goes changes
// nothing in it. What nobody asks for any more is forgotten after countedFor.
const (
	refusedSet = "refused"
	droppedSet = "dropped"

	countedReject = "counted-reject"
	countedDrop   = "counted-drop"

	countedFor = time.Hour
	// maxCounted bounds the destinations of each set: beyond it packets are refused and dropped as ever, and not counted.
	maxCounted = 8_192
)

func isCounted(name string) bool { return name == refusedSet || name == droppedSet }

func countedSpec(f model.Family, name string) nft.SetSpec {
	return nft.SetSpec{Ref: tableRef(f).Set(name), Key: []nft.Part{nft.Addr(nftFamily(f)), nft.L4Proto, nft.Port}, Size: maxCounted,
		Flags: nft.SetDynamic | nft.SetTimeout, Timeout: countedFor}
}

func countedDigest(f model.Family) string {
	spec := countedSpec(f, refusedSet)
	return digestOf(&spec)
}

func sameCounted(f model.Family, row nft.Set) bool {
	spec := countedSpec(f, row.Ref.Name)
	return spec.Matches(row)
}

// countedBase returns the sets and the chains that count.
func (d *Driver) countedBase(f model.Family, v *model.NodeView, put func(k dataplane.Kind, id, value string)) {
	if !v.CountRefusals {
		return
	}
	for _, name := range [...]string{refusedSet, droppedSet} {
		put(kindSet, name, countedDigest(f))
	}
	l := langOf(f)
	put(kindLeafChain, countedReject, d.chains.write(func() []rule { return append([]rule{counts(l, refusedSet)}, rejectRules(l)...) }))
	put(kindLeafChain, countedDrop, d.chains.write(func() []rule { return []rule{counts(l, droppedSet), nft.Does(nft.Drop())} }))
}

// counts is a rule that counts the packet and lets it go on, also if the set is full.
func counts(l lang, set string) rule {
	key, _ := nft.VIP(l.f)
	return nft.Join(key, rule{nft.Update(nft.UpdateSpec{Set: set, Key: nft.Word(0), Timeout: countedFor, Count: true})})
}

// rejectTo and dropTo are what an element leads to that refuses or drops.
func rejectTo(v *model.NodeView) string {
	if v.CountRefusals {
		return countedReject
	}
	return rejectChain
}

func dropTo(v *model.NodeView) string {
	if v.CountRefusals {
		return countedDrop
	}
	return dropValue
}

// drops is the rule that drops.
func drops(counted bool) rule {
	if counted {
		return nft.Does(nft.Goto(countedDrop))
	}
	return nft.Does(nft.Drop())
}

// Refusal is how many packets were refused or dropped on their way to one place.
type Refusal struct {
	Protocol model.Protocol
	To       netip.AddrPort
	Dropped  bool // not refused
	Packets  uint64
}

// Refusals reads what was counted. k must not be a Driver's.
func Refusals(ctx context.Context, k nft.Kernel, emit func(Refusal)) error {
	for _, f := range bothFamilies {
		for _, set := range [...]string{refusedSet, droppedSet} {
			n := addrLen(f)
			err := k.Elements(ctx, tableRef(f).Set(set), func(e *nft.Element) error {
				if addr, ok := netip.AddrFromSlice(e.Key[:min(n, len(e.Key))]); ok && len(e.Key) == n+8 {
					port := uint16(e.Key[n+4])<<8 | uint16(e.Key[n+5])
					emit(Refusal{model.Protocol(e.Key[n]), netip.AddrPortFrom(addr, port), set == droppedSet, e.Packets})
				}
				return nil
			})
			if missing(err) != nil {
				return fmt.Errorf("read set %s: %w", tableRef(f).Set(set), err)
			}
		}
	}
	return nil
}
