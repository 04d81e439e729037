package nftables

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Values of verdict objects whose verdict has no chain. Every other value is the name
// of the chain that the verdict goes to.
const (
	dropValue   = "!drop"
	returnValue = "!return"
)

// verdictOf returns the verdict of an object's value.
func verdictOf(value string) nft.Verdict {
	switch value {
	case dropValue:
		return nft.Drop()
	case returnValue:
		return nft.Return()
	}
	return nft.Goto(value)
}

// valueOf is the reverse of verdictOf. For a verdict that the agent never writes it
// returns a value that is never the desired one.
func valueOf(v nft.Verdict) string {
	switch v.Code {
	case nft.CodeGoto:
		return v.Chain
	case nft.CodeDrop:
		return dropValue
	case nft.CodeReturn:
		return returnValue
	case nft.CodeJump:
		return "!jump " + v.Chain
	}
	return "!other"
}

// step is one direction of the element phase: it writes a batch's deletions, or its additions.
type step struct {
	d    *Driver
	add  bool
	ops  int
	elem nft.Element
	key  []byte
	data []byte
}

// write puts one element into the batch.
func (s *step) write(set nft.SetRef) {
	if s.add {
		s.d.batch.AddElement(set, &s.elem)
	} else {
		s.d.batch.DelElement(set, &s.elem)
	}
	s.ops++
}

// half is one direction of an op: it writes the elements that are in mine but not in other.
type half struct {
	def         *setDef
	set         nft.SetRef
	key         dataplane.Key
	mine, other string
}

// op writes this step's half of an op. The deleting step removes elements that are in
// Have but not in Want; the adding step adds those in Want but not in Have. An update of an object
// is both.
func (s *step) op(o *dataplane.Op) {
	def := defOf(o.Key.Kind)
	if def == nil {
		s.stray(o)
		return
	}
	h := half{def: def, set: tableRef(o.Key.Family).Set(def.part(o.Key.ID)), key: o.Key, mine: o.Have, other: o.Want}
	if s.add {
		h.mine, h.other = h.other, h.mine
	}
	switch def.shape {
	case shapePool:
		s.pool(&h)
	case shapeRanges:
		s.ranges(&h)
	case shapeAllowed:
		s.allowed(&h)
	case shapeLive:
		s.live(&h)
	default:
		s.single(&h)
	}
}

// single writes an object that is one element.
func (s *step) single(h *half) {
	if h.mine == "" {
		return
	}
	s.key = appendKey(s.key[:0], h.def.ident, h.key.ID)
	s.elem = nft.Element{Key: s.key}
	if h.def.ident == identRange {
		s.data = appendKeyEnd(s.data[:0], h.def.ident, h.key.ID)
		s.elem.KeyEnd = s.data
	}
	if h.def.shape == shapeVerdict && s.add {
		s.elem.Verdict = verdictOf(h.mine)
	}
	s.write(h.set)
}

// pool writes the slots of mine that differ from the same slots of other.
func (s *step) pool(h *half) {
	w := h.def.slotWidth(h.key.Family)
	s.key = appendKey(s.key[:0], h.def.ident, h.key.ID)
	base, from := len(s.key), uint32(0)
	if h.def.hashed {
		from = hashBase
	}
	for i := 0; i*w < len(h.mine); i++ {
		el := h.mine[i*w : (i+1)*w]
		if len(h.other) >= (i+1)*w && h.other[i*w:(i+1)*w] == el || hole(el) {
			continue
		}
		s.key = nft.AppendSlot(s.key[:base], from+uint32(i))
		s.elem = nft.Element{Key: s.key}
		if s.add {
			s.data = append(s.data[:0], el...)
			if h.def.ident != identAddrProto {
				s.data = append(s.data, 0, 0)
			}
			s.elem.Data = s.data
		}
		s.write(h.set)
	}
}

// live writes the endpoints of mine that are not in other. Their position has no
// meaning here. Endpoints in the same position on both sides are skipped first; few others remain.
func (s *step) live(h *half) {
	w := h.def.slotWidth(h.key.Family)
	kept := map[string]struct{}{}
	for i := 0; i+w <= len(h.other); i += w {
		if el := h.other[i : i+w]; i+w > len(h.mine) || h.mine[i:i+w] != el {
			kept[el] = struct{}{}
		}
	}
	for i := 0; i+w <= len(h.mine); i += w {
		el := h.mine[i : i+w]
		if i+w <= len(h.other) && h.other[i:i+w] == el || hole(el) {
			continue
		}
		if _, both := kept[el]; both {
			continue
		}
		s.key = append(append(s.key[:0], el...), 0, 0)
		s.key = appendKey(s.key, h.def.ident, h.key.ID)
		s.elem = nft.Element{Key: s.key}
		s.write(h.set)
	}
}

// hole reports whether a slot is empty: all of its bytes are zero.
func hole(slot string) bool { return strings.Trim(slot, "\x00") == "" }

// eachRange calls do for each range of mine that is not in other.
func (h *half) eachRange(do func(first, last string)) {
	n := addrLen(h.key.Family)
	has := make(map[string]struct{}, len(h.other)/(2*n))
	for at := 0; at+2*n <= len(h.other); at += 2 * n {
		has[h.other[at:at+2*n]] = struct{}{}
	}
	for at := 0; at+2*n <= len(h.mine); at += 2 * n {
		if _, both := has[h.mine[at:at+2*n]]; !both {
			do(h.mine[at:at+n], h.mine[at+n:at+2*n])
		}
	}
}

// ranges writes intervals of a set of addresses. Each is a start element and, unless it
// includes the last address, an end element.
func (s *step) ranges(h *half) {
	h.eachRange(func(first, last string) {
		if !loneEnd(first, last) {
			s.elem = nft.Element{Key: append(s.key[:0], first...)}
			s.write(h.set)
		}
		if end, some := next(last); some {
			s.elem = nft.Element{Key: end, Flags: nft.ElementIntervalEnd}
			s.write(h.set)
		}
	})
}

// next returns the address after a, and reports whether there is one.
func next(a string) ([]byte, bool) {
	b := []byte(a)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b, true
		}
	}
	return nil, false
}

// allowed writes intervals of a concatenation, which are one element each.
func (s *step) allowed(h *half) {
	h.eachRange(func(first, last string) {
		s.key = append(appendKey(s.key[:0], h.def.ident, h.key.ID), first...)
		s.data = append(appendKeyEnd(s.data[:0], h.def.ident, h.key.ID), last...)
		s.elem = nft.Element{Key: s.key, KeyEnd: s.data}
		s.write(h.set)
	})
}

// stray deletes an element that the agent would not have written.
func (s *step) stray(o *dataplane.Op) {
	if s.add || o.Have == "" {
		return
	}
	set, e := parseStrayID(o.Key.ID)
	s.elem = e
	s.write(tableRef(o.Key.Family).Set(set))
}

// ranged sorts packed ranges and returns them joined into one value.
func ranged(list []string) string {
	slices.Sort(list)
	return strings.Join(list, "")
}
