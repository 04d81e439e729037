package relay

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Whereabouts classifies a client's address: a pod's, this node's, or neither. It is used
// only for externalTrafficPolicy Local and source ranges.
type Whereabouts struct {
	Pods []netip.Prefix
	Node []netip.Addr
}

// inside reports whether a client is a pod or this node. What this node sends to an
// address that is only here (a Service's, on lo) comes from that very address.
func (w *Whereabouts) inside(client, at netip.Addr) bool {
	return client == at || client.IsLoopback() || w.isNode(client) || within(w.Pods, client)
}

// isNode reports whether a client is this host.
func (w *Whereabouts) isNode(client netip.Addr) bool { return slices.Contains(w.Node, client) }

// prefixes returns the prefixes of the clients that are inside.
func (w *Whereabouts) prefixes(at netip.Addr) []netip.Prefix {
	out := []netip.Prefix{single(at), netip.MustParsePrefix("127.0.0.0/8"), single(netip.IPv6Loopback())}
	out = append(out, w.Pods...)
	for _, a := range w.Node {
		out = append(out, single(a))
	}
	return out
}

// guests returns the clients that the source ranges admit. They include this node's own
// connections to an address that is only here, if one of its addresses is in the ranges.
func (w *Whereabouts) guests(f *model.Frontend, at netip.Addr) []netip.Prefix {
	if at.IsLoopback() || slices.Contains(w.Node, at) ||
		!slices.ContainsFunc(w.Node, func(a netip.Addr) bool { return within(f.SourceRanges, a) }) {
		return f.SourceRanges
	}
	own := append(slices.Clone(f.SourceRanges), single(at), netip.MustParsePrefix("127.0.0.0/8"), single(netip.IPv6Loopback()))
	if at.Is6() { // Linux does not take the address itself as the source, if only a local route brings it here
		for _, a := range w.Node {
			own = append(own, single(a))
		}
	}
	return own
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
