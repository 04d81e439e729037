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

// If NodeView.CountRefusals is set, a packet to a Frontend that is refused or dropped increments a counter for its destination, in a
// set that packets fill. Forwarded packets do not evaluate the counting rules. Adding or removing a Service does not change these sets. The
// counter of a destination expires after countedFor without such packets.
const (
	refusedSet = "refused"
	droppedSet = "dropped"

	countedReject = "counted-reject"
	countedDrop   = "counted-drop"

	countedFor = time.Hour
	// maxCounted bounds the destinations of each set. Packets to further destinations are refused or dropped but not counted.
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

// counts returns a rule that counts the packet. Evaluation continues after it, also if the set is full.
func counts(l lang, set string) rule {
	key, _ := nft.VIP(l.f)
	return nft.Join(key, rule{nft.Update(nft.UpdateSpec{Set: set, Key: nft.Word(0), Timeout: countedFor, Count: true})})
}

// rejectTo and dropTo return the verdict value of elements that refuse or drop.
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

// drops returns a rule that drops the packet, and counts it if counted is set.
func drops(counted bool) rule {
	if counted {
		return nft.Does(nft.Goto(countedDrop))
	}
	return nft.Does(nft.Drop())
}

// Refusal is the number of packets to one destination that were refused or dropped.
type Refusal struct {
	Protocol model.Protocol
	To       netip.AddrPort
	Dropped  bool // dropped, as opposed to refused
	Packets  uint64
}

// Refusals reads the counters and emits one Refusal for each. k must not be the Kernel of a Driver.
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
