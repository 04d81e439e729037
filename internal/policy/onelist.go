package policy

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// OneList adapts a decision to a data plane that has one list of backends for all clients: under externalTrafficPolicy Local pods
// and the node use the endpoints on this node if there are any, and otherwise those of the whole cluster. Endpoints that this
// excludes keep their flows, as after any change of a traffic policy (contract.md 13).
func (r *Result) OneList() {
	for i := range r.Frontends {
		f := &r.Frontends[i]
		if !f.LocalOnly || f.LocalVerdict != model.Forward {
			continue
		}
		others := slices.Clone(f.Others) // other Frontends of the port have the same
		for _, b := range f.Backends {
			at := func(local model.Backend, a netip.AddrPort) int { return local.AddrPort().Compare(a) }
			if _, here := slices.BinarySearchFunc(f.LocalBackends, b.AddrPort(), at); !here {
				others = append(others, model.Other{Addr: b.AddrPort(), Serving: true, Why: model.Elsewhere})
			}
		}
		slices.SortFunc(others, func(a, b model.Other) int { return a.Addr.Compare(b.Addr) })
		f.Others = others
		f.Verdict, f.Backends, f.HashTable = model.Forward, f.LocalBackends, f.LocalHashTable
	}
}
