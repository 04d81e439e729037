package offload

import (
	"path"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// base renders the objects that do not depend on the Services.
func (s *side) base(v *model.NodeView, emit func(dataplane.Object)) {
	for _, f := range s.served {
		put := func(k dataplane.Kind, id, value string) {
			emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: f, ID: id}, Value: value})
		}
		put(kindTable, "", layout)
		put(kindFlowtable, "", present)
		put(kindChain, chainName, present)
		put(kindChain, handOver, present)
		put(kindSet, nodeIPs, present)
		put(kindSet, excluded, present)
		if list := ranges(v.Unaccelerated, f); list != "" {
			put(kindExcluded, "", list)
		}
		put(kindRule, handOver, s.tags(f, handOver))
		s.ruleOf(f, "", emit)
		for _, a := range v.NodePortAddrs {
			if model.FamilyOf(a) == f {
				put(kindMember, nodeIPs+"|"+string(nft.AppendAddr(nil, a)), present)
			}
		}
		for _, l := range v.Links {
			if s.p.takes(l.Name) {
				put(kindDevice, l.Name, deviceValue(&l))
			}
		}
	}
}

// ruleOf renders the rules of a threshold and the sets that they look up.
func (s *side) ruleOf(f model.Family, threshold string, emit func(dataplane.Object)) {
	put := func(k dataplane.Kind, id, value string) {
		emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: f, ID: id}, Value: value})
	}
	put(kindChain, named(take, threshold), present)
	put(kindSet, named(services, threshold), present)
	put(kindSet, named(nodePorts, threshold), present)
	put(kindRule, threshold, s.tags(f, threshold))
}

// render renders one Frontend. A range of ports has no element, and the kernel's fast path does not support protocols other than
// those here: their connections pass through the rules.
func (s *side) render(f *model.Frontend, emit func(dataplane.Object)) {
	forwards := f.Verdict == model.Forward || f.LocalOnly && f.LocalVerdict == model.Forward
	if !forwards || f.Offload < 0 || f.Key.Range() || f.Key.Protocol != model.TCP && f.Key.Protocol != model.UDP ||
		!slices.Contains(s.served, f.Key.Family) {
		return
	}
	threshold := ""
	if f.Offload > 0 {
		threshold = strconv.Itoa(f.Offload)
		s.ruleOf(f.Key.Family, threshold, emit)
	}
	set, key := nodePorts, []byte(nil)
	if f.Key.Addr.IsValid() {
		set, key = services, nft.AppendAddr(key, f.Key.Addr)
	}
	key = nft.AppendPort(nft.AppendProto(key, uint8(f.Key.Protocol)), f.Key.Port)
	emit(dataplane.Object{Key: dataplane.Key{Kind: kindMember, Family: f.Key.Family, ID: named(set, threshold) + "|" + string(key)}, Value: present})
}

// takes reports whether a device is desired in the flowtable. lo never is, because its packets are not forwarded.
func (p *Params) takes(name string) bool {
	if name == "lo" || matches(p.Exclude, name) {
		return false
	}
	return len(p.Include) == 0 || matches(p.Include, name)
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}
