package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// guard applies spec.loadBalancerSourceRanges to load balancer IPs (contract.md
// 6; never to NodePorts: users are surprised by that, #33586), and the
// annotation fairlead.dev/nodeport-source-ranges to NodePorts.
func (in *Inputs) guard(f *model.Frontend) {
	var ranges []netip.Prefix
	switch f.Kind {
	case model.LoadBalancer:
		ranges = in.Service.SourceRanges
	case model.NodePort:
		ranges = in.Service.Extras.NodePortRanges
	}
	if len(ranges) == 0 {
		return
	}
	mine := ofFamily(ranges, f.Key.Family)
	// A range of /0 lifts the guard. If all ranges are of the other family, this family is
	// closed. kube-proxy leaves it open to all clients, which is not what a user means who
	// lists the allowed clients.
	if everyone(mine) || len(mine) == 0 && everyone(ranges) {
		return
	}
	f.Guarded = true
	for i := range mine {
		mine[i] = mine[i].Masked()
	}
	// A connection from this node to a VIP that is also an address of this node has
	// the VIP as its source; it is allowed when the node itself is. All VIPs of the
	// Service are allowed for each of them, as by kube-proxy, because a data plane may
	// keep one list for all (kubernetes#109826).
	if f.Kind == model.LoadBalancer && slices.ContainsFunc(in.Node.Addrs, func(a netip.Addr) bool { return contains(mine, a) }) {
		for _, vip := range in.Service.LoadBalancerIPs {
			if model.FamilyOf(vip) == f.Key.Family {
				mine = append(mine, netip.PrefixFrom(vip, vip.BitLen()))
			}
		}
	}
	f.SourceRanges = Minimal(mine)
}

// everyone reports whether a list contains a prefix of length 0.
func everyone(list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// ofFamily returns a new list.
func ofFamily(list []netip.Prefix, fam model.Family) (out []netip.Prefix) {
	for _, p := range list {
		if model.FamilyOf(p.Addr()) == fam {
			out = append(out, p)
		}
	}
	return out
}

// contains reports whether an address is in one of the prefixes.
func contains(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Minimal sorts prefixes and drops those that lie inside another: an nft interval
// set refuses them. The argument is not changed.
func Minimal(list []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	out := sorted[:0]
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Bits() <= p.Bits() && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// MaxWeight is the highest weight that fairlead.dev/weights may set.
const MaxWeight = model.MaxWeight

// weights reads fairlead.dev/weights, "10.0.0.1=3,web-0=0": endpoints by address
// or hostname. The source has checked the form; what does not parse is left out.
func (in *Inputs) weights() map[string]uint16 {
	if in.Service.Extras.Weights == "" {
		return nil
	}
	out := map[string]uint16{}
	for _, item := range strings.Split(in.Service.Extras.Weights, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		w, err := strconv.ParseUint(value, 10, 16)
		if ok && err == nil && w <= MaxWeight {
			out[name] = uint16(w)
		}
	}
	return out
}
