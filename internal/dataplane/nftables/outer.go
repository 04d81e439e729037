package nftables

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// outer describes the shared chain of externalTrafficPolicy Local. Pods and the node
// itself may use all endpoints of the cluster; all other clients use only the endpoints on this node.
type outer struct {
	cluster leaf
	verdict model.Verdict // for pods and the node; cluster is used if it is Forward
	local   leaf
	other   model.Verdict // for all other clients; local is used if it is Forward
}

// name returns the name of the chain. Example: xl-np-4-1 is that of a NodePort with a cluster list of class 4 and a local
// list of class 1, xl-np-4-drop that of one without an endpoint on this node.
func (o outer) name() string {
	b := append(make([]byte, 0, 32), "xl-"...)
	if o.cluster.masquerade {
		b = append(b, "ext-"...)
	}
	b = append(side(b, o.cluster, o.verdict), '-')
	if o.other == model.Forward {
		b = strconv.AppendUint(b, uint64(o.local.class), 10)
	} else {
		b = append(b, o.other.String()...)
	}
	return string(o.cluster.memory.appendName(b))
}

// side appends the part of the name that stands for the cluster side: a leaf, or a verdict.
func side(b []byte, c leaf, v model.Verdict) []byte {
	if v == model.Forward {
		return c.appendName(b)
	}
	c.class = 0
	b = c.appendName(b)
	return append(b[:len(b)-1], v.String()...)
}

// leaves returns the chains that the rules of o go to: that for pods first, that for the node last.
func (o outer) leaves() []leaf {
	if o.verdict != model.Forward {
		return nil
	}
	node := o.cluster
	node.masquerade = true
	if o.cluster == node {
		return []leaf{node}
	}
	return []leaf{o.cluster, node}
}

// rules returns the rules of the chain: pods go to the cluster side, then this node's own connections go there, which are
// masqueraded, and all others go to the local side.
func (o outer) rules(l lang, podsAre *model.LocalDetector, counted bool) []rule {
	pods, node := ends(o.verdict, counted), ends(o.verdict, counted)
	if ls := o.leaves(); len(ls) > 0 {
		pods, node = nft.Does(nft.Goto(ls[0].name())), nft.Does(nft.Goto(ls[len(ls)-1].name()))
	}
	var out []rule
	if isPod, some := l.fromPod(podsAre, false); some {
		out = append(out, nft.Join(isPod, pods))
	}
	out = append(out, nft.Join(nft.FromThisNode(), node))
	if o.other == model.Forward {
		return append(out, o.local.draws(l)...)
	}
	return append(out, ends(o.other, counted))
}

// guardedPrefix is the prefix of the names of chains that accept only source ranges.
const guardedPrefix = "guarded-"

// guarded returns the rules that check the clients of a range of ports against its
// source ranges. Accepted clients get the verdict on. The check runs after the lookup
// of the range. The check of single ports runs before all lookups; that is not
// possible here, because a port in the range may belong to another Service.
func guarded(l lang, counted bool, on nft.Verdict) []rule {
	key, next := nft.VIP(l.f)
	return []rule{
		nft.Join(key, rule{nft.SourceAddr(l.f, nft.Word(next)), nft.In("fw-allowed-ranges")}, nft.Does(on)),
		drops(counted),
	}
}

// ends returns the rule for a verdict other than Forward. Reject is written as
// `return`, because chains of type nat cannot reject: the packet continues untranslated
// and the filter chain `refuse` rejects it.
func ends(v model.Verdict, counted bool) rule {
	if v == model.Drop {
		return drops(counted)
	}
	return nft.Does(nft.Return())
}

// rejectChain is the name of the chain that refuses connections.
const rejectChain = "reject-chain"

// rejectRules returns the rules of rejectChain. TCP gets a reset, because a TCP client
// on this host reacts to an ICMP error only after a second (docs/design/nftables.md).
func rejectRules(l lang) []rule {
	tcp := rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{unix.IPPROTO_TCP}), nft.RejectReset()}
	return []rule{tcp, {nft.RejectPort(l.f)}}
}
