package conntrack

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// ranges finds the range of ports that a flow's destination lies in. An address
// has few: one for each protocol, and those that have just gone.
type ranges map[model.FrontendKey][]model.FrontendKey

// whole is the address and protocol of a key.
func whole(k model.FrontendKey) model.FrontendKey {
	k.Port, k.LastPort = 0, 0
	return k
}

func (r ranges) add(k model.FrontendKey) {
	if list := r[whole(k)]; k.Range() && !slices.Contains(list, k) {
		r[whole(k)] = append(list, k)
	}
}

// keep removes all keys for which wanted returns false.
func (r ranges) keep(wanted func(model.FrontendKey) bool) {
	for at, list := range r {
		list = slices.DeleteFunc(list, func(k model.FrontendKey) bool { return !wanted(k) })
		if r[at] = list; len(list) == 0 {
			delete(r, at)
		}
	}
}

// each returns the ranges around a key of one port.
func (r ranges) each(k model.FrontendKey, yield func(model.FrontendKey)) {
	if len(r) == 0 {
		return
	}
	for _, x := range r[whole(k)] {
		if x.Port <= k.Port && k.Port <= x.LastPort {
			yield(x)
		}
	}
}

// endOf is where a flow goes, as the lists of a key name it: in a range without the
// port, provided that it is the one the client asked for.
func endOf(x *conntrack.Flow, k model.FrontendKey) netip.AddrPort {
	if k.Range() && x.Reply.Src.Port() == x.Orig.Dst.Port() {
		return netip.AddrPortFrom(x.Reply.Src.Addr(), 0)
	}
	return x.Reply.Src
}
