package nftables

import (
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// layoutPrefix is the start of the name of the empty chain that carries the layout. The
// layout is the version of the objects in the tables. Raise it when an older or newer
// agent could not repair the tables object by object; it then rebuilds them. The name
// of a chain carries it, because the mark of a table cannot be changed while the table exists.
const layoutPrefix = "layout-"

// layoutChain is the name of that chain for the current layout.
const layoutChain = layoutPrefix + "3"

// tableValue is the layout in the mark of a table. Change it only if nothing in an older
// table may be kept, session affinity state included: the table is then deleted.
const tableValue = "layout 3"

// Base implements dataplane.Driver. It emits the desired objects that belong to no Frontend.
func (d *Driver) Base(view model.NodeView, emit func(dataplane.Object)) {
	for _, f := range d.families {
		put := func(k dataplane.Kind, id, value string) {
			emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: f, ID: id}, Value: value})
		}
		put(dataplane.KindRoot, "", tableValue)
		for _, def := range ownSets() {
			for _, part := range def.parts() {
				put(kindSet, part, def.digest(f))
			}
		}
		d.countedBase(f, &view, put)
		put(kindLeafChain, layoutChain, noRules)
		put(kindLeafChain, rejectChain, d.chains.write(func() []rule { return rejectRules(langOf(f)) }))
		for _, c := range fixedChains() {
			put(kindBaseChain, c.name, d.chains.write(func() []rule { return c.rules(langOf(f), &view) }))
		}
		if v := packPrefixes(podRanges(nftFamily(f), &view)); v != "" {
			put(kindPodCIDRs, "", v)
		}
		if v := packPrefixes(ofFamily(view.ServiceCIDRs, f)); v != "" {
			put(kindServiceCIDRs, "", v)
		}
		for _, a := range view.NodePortAddrs {
			if model.FamilyOf(a) == f {
				put(kindNodePortIP, string(nft.AppendAddr(nil, a)), present)
			}
		}
	}
}

// podRanges returns the pod ranges of a family, nil unless pods are detected by CIDR.
func podRanges(f nft.Family, v *model.NodeView) []netip.Prefix {
	if v.Local.Mode != model.DetectCIDR {
		return nil
	}
	if f == nft.IPv6 {
		return ofFamily(v.Local.CIDRs, model.IPv6)
	}
	return ofFamily(v.Local.CIDRs, model.IPv4)
}

// ofFamily returns the prefixes of a family.
func ofFamily(list []netip.Prefix, f model.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if model.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}

// packPrefixes returns prefixes as a value of ranges: the first and last address of
// each, sorted.
func packPrefixes(list []netip.Prefix) string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		first, last := nft.PrefixBounds(p)
		out = append(out, string(nft.AppendAddr(nft.AppendAddr(nil, first), last)))
	}
	return ranged(out)
}
