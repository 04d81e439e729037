package conntrack

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// inbox holds the updates received since the Cleaner last took it. It is bounded by the
// number of keys.
type inbox struct {
	words     map[model.FrontendKey]word
	nodePorts map[netip.Addr]struct{} // nil: unchanged
	moved     map[netip.Addr]struct{} // addresses that were added to the NodePort addresses or removed from them
	sweep     bool
}

// word holds the updates of one key.
type word struct {
	change
	changed bool             // an Update was received, which change holds
	between bool             // no Service held the key for some time in between
	earlier []netip.AddrPort // pending endpoints before that Update: flows may have begun by them, and none begins any more
	maybe   []netip.AddrPort // endpoints of writes that have been pending since
}

// change is where the flows of a key may go from now on.
type change struct {
	stay []netip.AddrPort
	gone bool
}

func (in *inbox) put(k model.FrontendKey, ch change) {
	w := in.words[k]
	w.earlier = union(union(w.earlier, w.maybe), w.stay)
	w.between = w.between || w.gone
	w.change, w.changed, w.maybe = ch, true, nil
	in.set(k, w)
}

func (in *inbox) perhaps(k model.FrontendKey, stay []netip.AddrPort) {
	w := in.words[k]
	w.maybe = union(w.maybe, stay)
	in.set(k, w)
}

// addresses replaces the NodePort addresses and records which of them differ from before.
func (in *inbox) addresses(before, now map[netip.Addr]struct{}) {
	if in.moved == nil {
		in.moved = map[netip.Addr]struct{}{}
	}
	for _, pair := range [...][2]map[netip.Addr]struct{}{{before, now}, {now, before}} {
		for a := range pair[0] {
			if _, both := pair[1][a]; !both {
				in.moved[a] = struct{}{}
			}
		}
	}
	in.nodePorts = now
}

func (in *inbox) set(k model.FrontendKey, w word) {
	if in.words == nil {
		in.words = map[model.FrontendKey]word{}
	}
	in.words[k] = w
}

// union of two sorted lists, sorted.
func union(a, b []netip.AddrPort) []netip.AddrPort {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0 || slices.Equal(a, b):
		return a
	}
	out := make([]netip.AddrPort, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].Compare(b[0]); {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}
