package offload

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// ranges returns the value of kindExcluded for the prefixes of a family: the first and last address of each range. The prefixes must
// be sorted and not nested. The ranges neither overlap nor adjoin.
func ranges(list []netip.Prefix, f model.Family) string {
	var out strings.Builder
	var first, last netip.Addr
	put := func() {
		if first.IsValid() {
			out.Write(first.AsSlice())
			out.Write(last.AsSlice())
		}
	}
	for _, p := range list {
		from, to := nft.PrefixBounds(p)
		switch {
		case model.FamilyOf(from) != f:
		case last.IsValid() && last.Next() == from:
			last = to
		default:
			put()
			first, last = from, to
		}
	}
	put()
	return out.String()
}

// setExcluded rewrites the whole set, because it is unknown which part of it another program may have changed.
func (w *writer) setExcluded(op dataplane.Op) {
	set := tableRef(w.f).Set(excluded)
	w.batch.FlushSet(set)
	n := kernelFamily(w.f).AddrLen()
	for v := []byte(op.Want); len(v) >= 2*n; v = v[2*n:] {
		w.batch.AddElement(set, &nft.Element{Key: v[:n]})
		last, _ := netip.AddrFromSlice(v[n : 2*n])
		if next := last.Next(); next.IsValid() {
			w.batch.AddElement(set, &nft.Element{Key: next.AsSlice(), Flags: nft.ElementIntervalEnd})
		}
	}
}

// packed returns the value of kindExcluded for the elements of the set; false if they are not ranges in the form that setExcluded
// writes.
func packed(list []nft.Element, f model.Family) (string, bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(e nft.Element) bool { // the kernel adds it before the first range
		return e.Flags&nft.ElementIntervalEnd != 0 && strings.Trim(string(e.Key), "\x00") == ""
	})
	slices.SortFunc(list, func(a, b nft.Element) int { return strings.Compare(string(a.Key), string(b.Key)) })
	var out strings.Builder
	for i := range list {
		end := list[i].Flags&nft.ElementIntervalEnd != 0
		if end != (i%2 == 1) {
			return "", false
		}
		at, ok := netip.AddrFromSlice(list[i].Key)
		if end {
			at = at.Prev()
		}
		if !ok {
			return "", false
		}
		out.Write(at.AsSlice())
	}
	if len(list)%2 == 1 { // the last range ends at the last address of the family
		out.WriteString(strings.Repeat("\xff", kernelFamily(f).AddrLen()))
	}
	return out.String(), true
}
