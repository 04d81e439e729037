package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/model"
)

// Way is the outcome of a new connection to one Frontend.
type Way struct {
	For        string    `json:"for,omitempty"` // which clients; "" if all clients, or the client in the question
	Verdict    string    `json:"verdict"`       // forward, reject or drop; none: it is not served, and no rule handles it
	Why        string    `json:"why,omitempty"` // why it is not forwarded
	Backends   []Backend `json:"backends,omitempty"`
	Count      int       `json:"count"`                // number of backends; the list may be truncated
	Masquerade string    `json:"masquerade,omitempty"` // why the source becomes this node's; "" if it is preserved
	Choice     string    `json:"choice,omitempty"`     // how a backend is chosen

	list []model.Backend // all of Backends
}

// Backend is a backend that may be chosen.
type Backend struct {
	Addr   string `json:"address"`
	Weight uint16 `json:"weight,omitempty"` // 0 if all weights are equal
	Here   bool   `json:"here,omitempty"`
}

// everybodyElse is the text for the clients that no other Way covers.
const everybodyElse = "all other clients"

// maxListed bounds the lists of an answer. The answer also contains the full count.
const maxListed = 256

// WayOf returns the outcome of one client's new connection.
func WayOf(f *model.Frontend, v *model.NodeView, c Client) Way {
	if why, shut := guardedAgainst(f, c.Addr); shut {
		return Way{Verdict: model.Drop.String(), Why: why}
	}
	var w Way
	switch {
	case !f.LocalOnly:
		w = wholeWay(f)
		w.Masquerade = masquerade(f, v, &c)
	case c.Pod:
		w = insideWay(f, "")
	case c.Node:
		w = insideWay(f, "the packet comes from this node")
	default:
		w = outsideWay(f)
	}
	isSelf := func(b model.Backend) bool { return b.Local && b.Addr == c.Addr }
	if w.Verdict == model.Forward.String() && w.Masquerade == "" && slices.ContainsFunc(w.list, isSelf) {
		w.Masquerade = Hairpin
	}
	return w
}

// schedule sets how IPVS chooses, which is not at random. other is its scheduler if the Service specifies
// none.
func (y *Way) schedule(f *model.Frontend, other string) {
	if other == "" || y.Choice == "" || f.ConsistentHash {
		return
	}
	y.Choice = "by the scheduler " + cmp.Or(f.IPVSScheduler, other)
	if f.AffinityTimeout > 0 {
		y.Choice += fmt.Sprintf(", then the same one for %s (session affinity)", f.AffinityTimeout)
	}
}

// Hairpin is why an endpoint that connects to itself sees another source.
const Hairpin = "only if the client is the endpoint itself"

// Ways returns the outcomes for all clients, one Way per group of clients.
func Ways(f *model.Frontend, v *model.NodeView) []Way {
	var out []Way
	if !f.LocalOnly {
		w := wholeWay(f)
		w.Masquerade = masquerade(f, v, nil)
		out = append(out, w)
	} else {
		in, outside := insideWay(f, ""), outsideWay(f)
		in.For, outside.For = "pods and this node", everybodyElse
		out = append(out, in, outside)
	}
	if f.Guarded {
		for i := range out {
			out[i].For = strings.TrimPrefix(out[i].For+" within "+prefixes(f.SourceRanges), " ")
		}
		out = append(out, Way{For: everybodyElse, Verdict: model.Drop.String(), Why: "not in " + rangesField(f)})
	}
	return out
}

func rangesField(f *model.Frontend) string {
	if f.Kind == model.NodePort {
		return "fairlead.dev/nodeport-source-ranges"
	}
	return "loadBalancerSourceRanges"
}

func guardedAgainst(f *model.Frontend, a netip.Addr) (string, bool) {
	if !f.Guarded || slices.ContainsFunc(f.SourceRanges, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return "", false
	}
	return fmt.Sprintf("%s is not in %s %s", a, rangesField(f), prefixes(f.SourceRanges)), true
}

func prefixes(list []netip.Prefix) string {
	if len(list) == 0 {
		return "(none of this family)"
	}
	var b []string
	for _, p := range list {
		b = append(b, p.String())
	}
	return strings.Join(b, " ")
}

func wholeWay(f *model.Frontend) Way { return way(f, f.Verdict, f.Backends) }

// insideWay is the short cut of externalTrafficPolicy Local: the Way of pods and of this node, which may use all endpoints.
func insideWay(f *model.Frontend, masquerade string) Way {
	w := way(f, f.Verdict, f.Backends)
	if w.Verdict == model.Forward.String() {
		w.Masquerade = masquerade
	}
	return w
}

func outsideWay(f *model.Frontend) Way {
	w := way(f, f.LocalVerdict, f.LocalBackends)
	if f.LocalVerdict == model.Drop {
		w.Why = "externalTrafficPolicy is Local, and no usable endpoint is on this node"
	}
	return w
}

func way(f *model.Frontend, verdict model.Verdict, list []model.Backend) Way {
	w := Way{Verdict: verdict.String(), Count: len(list), list: list}
	switch verdict {
	case model.Reject:
		w.Why = "no usable endpoint"
	case model.Drop:
		w.Why = "the traffic policy is Local, and no usable endpoint is on this node"
	}
	if len(list) == 0 {
		return w
	}
	alike := !slices.ContainsFunc(list, func(b model.Backend) bool { return b.Weight != list[0].Weight })
	for _, b := range list[:min(len(list), maxListed)] {
		to := Backend{Addr: b.AddrPort().String(), Here: b.Local}
		if b.Port == 0 { // of a range: the port is not translated
			to.Addr = b.Addr.String()
		}
		if !alike {
			to.Weight = b.Weight
		}
		w.Backends = append(w.Backends, to)
	}
	w.Choice = choice(f, alike, len(list))
	return w
}

func choice(f *model.Frontend, alike bool, n int) string {
	switch {
	case f.ConsistentHash:
		return "by a hash of the client's address"
	case f.AffinityTimeout > 0:
		return fmt.Sprintf("at random, then the same one for %s (session affinity)", f.AffinityTimeout)
	case !alike:
		return "at random, by weight"
	case n > 1:
		return fmt.Sprintf("at random, 1/%d each", n)
	}
	return ""
}

// masquerade returns why a connection to Backends gets this node's address; "" if it
// does not. c is nil if all clients are meant.
func masquerade(f *model.Frontend, v *model.NodeView, c *Client) string {
	if f.Verdict != model.Forward {
		return ""
	}
	if f.Kind.External() {
		if f.Masquerade {
			return "external traffic under policy Cluster"
		}
		return ""
	}
	switch {
	case v.MasqueradeAll:
		return "masquerade-all is on"
	case !detects(v, f.Key.Family):
		return ""
	case c == nil:
		return "unless the client is a pod"
	case !c.Pod:
		return "the client is not a pod"
	}
	return ""
}

// detects reports whether pods of a family can be distinguished from other clients.
func detects(v *model.NodeView, fam model.Family) bool {
	if v.Local.Mode != model.DetectCIDR {
		return v.Local.Mode != model.DetectNone && v.Local.Interface != ""
	}
	return slices.ContainsFunc(v.Local.CIDRs, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == fam })
}
