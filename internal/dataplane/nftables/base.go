package nftables

import (
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Hook priorities. The filter chains run ten before or ten after the standard priority
// of nat chains: source ranges are checked before the destination is rewritten;
// affinity is learned, and the node's own connections are refused, after it.
const (
	beforeNAT = -110
	dstNAT    = -100
	afterNAT  = -90
	srcNAT    = 100
)

// fixedChain is a chain that every table has.
type fixedChain struct {
	name  string
	hook  *nft.Hook
	rules func(l lang, v *model.NodeView) []rule
}

// hook returns a hook whose policy is accept.
func hook(typ string, num nft.HookNum, prio int32) *nft.Hook {
	return &nft.Hook{Type: typ, Num: num, Priority: prio, Policy: nft.PolicyAccept}
}

// fixedChains returns the fixed chains of each table. reject-chain is not among them:
// it is a leaf chain.
func fixedChains() []fixedChain {
	return []fixedChain{
		{name: "guard-check", rules: guardCheck},
		{name: "guard-check-nodeports", rules: guardCheckNodePorts},
		{name: "guard", rules: guard},
		{name: "guard-prerouting", hook: hook("filter", nft.HookPrerouting, beforeNAT), rules: guardPrerouting},
		{name: "guard-output", hook: hook("filter", nft.HookOutput, beforeNAT), rules: jumpIfNew("guard")},
		{name: "dispatch", rules: dispatch},
		{name: "nat-prerouting", hook: hook("nat", nft.HookPrerouting, dstNAT), rules: jump("dispatch")},
		{name: "nat-output", hook: hook("nat", nft.HookOutput, dstNAT), rules: jump("dispatch")},
		{name: "nat-postrouting", hook: hook("nat", nft.HookPostrouting, srcNAT), rules: postrouting},
		{name: "learn", rules: learn},
		{name: "learn-prerouting", hook: hook("filter", nft.HookPrerouting, afterNAT), rules: learnIfNew},
		{name: "refuse", rules: refuse},
		{name: "refuse-input", rules: refuseInput},
		{name: "filter-forward", hook: hook("filter", nft.HookForward, beforeNAT), rules: jumpIfNew("refuse")},
		{name: "filter-input", hook: hook("filter", nft.HookInput, beforeNAT), rules: jumpIfNew("refuse-input")},
		// After DNAT: before it, the node's own connections to live Services would be refused (nftables.md E7).
		{name: "filter-output", hook: hook("filter", nft.HookOutput, afterNAT), rules: filterOutput},
	}
}

// fixedHooks returns the hooks of the fixed chains by name. The hook of a chain that is
// not a base chain is nil.
func fixedHooks() map[string]*nft.Hook {
	out := map[string]*nft.Hook{}
	for _, c := range fixedChains() {
		out[c.name] = c.hook
	}
	return out
}

// jump returns one rule that jumps to a chain.
func jump(chain string) func(lang, *model.NodeView) []rule {
	return func(lang, *model.NodeView) []rule { return []rule{nft.Does(nft.Jump(chain))} }
}

// jumpIfNew returns one rule that jumps to a chain with packets of new connections.
func jumpIfNew(chain string) func(lang, *model.NodeView) []rule {
	return func(lang, *model.NodeView) []rule {
		return []rule{nft.Join(nft.NewConnection(), nft.Does(nft.Jump(chain)))}
	}
}

// guard returns the rules that check new connections to guarded Frontends against their
// source ranges, before the destination is rewritten.
func guard(l lang, _ *model.NodeView) []rule {
	vip, _ := nft.VIP(l.f)
	port, _ := nft.L4Port()
	return []rule{
		nft.Join(vip, rule{nft.In("fw-guarded")}, nft.Does(nft.Goto("guard-check"))),
		nft.Join(nft.To(l.f, "nodeport-ips"), port, rule{nft.In("fw-guarded-nodeports")}, nft.Does(nft.Goto("guard-check-nodeports"))),
	}
}

// guardPrerouting returns rules that drop packets from outside to 127.0.0.0/8, and then
// jump to guard. NodePorts on 127.0.0.1 need route_localnet; with that setting the kernel
// accepts such packets, for every process that listens on loopback only (CVE-2020-8558,
// kubernetes#90259). The chain runs before any translation, when replies to the node's
// own connections to 127.0.0.1 still have another destination address. The kernel
// always drops ::1.
func guardPrerouting(l lang, v *model.NodeView) []rule {
	rules := jumpIfNew("guard")(l, v)
	if l.f != nft.IPv4 {
		return rules
	}
	localnet := rule{nft.DestAddr(l.f, nft.Word(0)), nft.Bitwise(nft.Word(0), nft.Word(0), []byte{255, 0, 0, 0}, make([]byte, 4)),
		nft.Equal(nft.Word(0), []byte{127, 0, 0, 0})}
	return append([]rule{nft.Join(localnet, inputDevice(nft.AppendIfName(nil, "lo"), true), nft.Does(nft.Drop()))}, rules...)
}

// guardCheck returns the rules that accept only the clients in fw-allowed; see allowed.
func guardCheck(l lang, v *model.NodeView) []rule {
	key, next := nft.VIP(l.f)
	return allowed(v, nft.Join(key, rule{nft.SourceAddr(l.f, nft.Word(next)), nft.In("fw-allowed")}))
}

func guardCheckNodePorts(l lang, v *model.NodeView) []rule {
	key, next := nft.L4Port()
	return allowed(v, nft.Join(key, rule{nft.SourceAddr(l.f, nft.Word(next)), nft.In("fw-allowed-nodeports")}))
}

// allowed returns a positive match of the client and a drop. A single negated match
// would do the same, but nft cannot list it.
func allowed(v *model.NodeView, client rule) []rule {
	return []rule{
		nft.Join(client, nft.Does(nft.Return())),
		drops(v.CountRefusals),
	}
}

// dispatch returns the rules that look up the Frontend of a new connection. A
// connection that matches no Frontend passes unchanged.
func dispatch(l lang, v *model.NodeView) []rule {
	var out []rule
	if m, some := clusterIPMasquerade(l, v); some {
		out = append(out, m)
	}
	vip, _ := nft.VIP(l.f)
	port, _ := nft.L4Port()
	return append(out,
		nft.Join(vip, rule{nft.VMap("services")}),
		nft.Join(nft.To(l.f, "nodeport-ips"), port, rule{nft.VMap("nodeports")}),
		nft.Join(vip, rule{nft.VMap("ranges")})) // a single port takes precedence over a range that contains it
}

// clusterIPMasquerade returns the rule that marks connections to ClusterIPs that do not
// come from pods (contract.md 4), and reports whether the view needs that rule.
func clusterIPMasquerade(l lang, v *model.NodeView) (rule, bool) {
	set := nft.Mark(markBits(v))
	if v.MasqueradeAll {
		return nft.Join(nft.To(l.f, "cluster-ips"), set), true
	}
	if v.Local.Mode == model.DetectCIDR && len(podRanges(l.f, v)) == 0 {
		return nil, false // a family without pod ranges counts as not detected
	}
	outside, some := l.fromPod(&v.Local, true)
	return nft.Join(nft.To(l.f, "cluster-ips"), outside, set), some
}

// markBits returns the packet mark that requests masquerading.
func markBits(v *model.NodeView) uint32 { return 1 << (v.MasqueradeBit & 31) }

// postrouting returns the rules that masquerade. The mark is cleared once it has been
// used. Hairpin connections, from an endpoint to itself, are masqueraded as well:
// with its own address as source the endpoint would reply to itself directly, and the
// reply would bypass the translation.
func postrouting(l lang, v *model.NodeView) []rule {
	pair := rule{
		nft.SourceAddr(l.f, nft.Word(0)), nft.DestAddr(l.f, nft.Word(l.addr)), nft.MetaL4Proto(nft.Word(2 * l.addr)),
	}
	return []rule{
		nft.Join(nft.Unmark(markBits(v)), rule{nft.Masquerade()}),
		nft.Join(translated(), pair, rule{nft.DestPort(nft.Word(2*l.addr + 1)), nft.In("hairpin"), nft.Masquerade()}),
		nft.Join(translated(), pair, rule{nft.In("hairpin-ranges"), nft.Masquerade()}),
	}
}

// learnIfNew returns one rule that jumps to learn with the first packet of a connection whose destination was translated.
func learnIfNew(lang, *model.NodeView) []rule {
	return []rule{nft.Join(nft.NewConnection(), translatedNow(), nft.Does(nft.Jump("learn")))}
}

// learn returns the rules that look up the learning chain of a Frontend, which has the
// Frontend's affinity timeout. The lookup key is the original destination of the
// connection. Each rule matches the protocol first, because nft cannot read back a
// bare `ct original proto-dst`.
func learn(l lang, _ *model.NodeView) []rule {
	var out []rule
	for _, p := range [...]model.Protocol{model.TCP, model.UDP, model.SCTP} {
		out = append(out, nft.Join(isProto(p), rule{
			nft.CtOriginalDest(l.f, nft.Word(0)), nft.MetaL4Proto(nft.Word(l.addr)),
			nft.CtOriginalDestPort(nft.Word(l.addr + 1)), nft.VMap("affinity"),
		}), nft.Join(isProto(p), rule{
			nft.CtOriginalDest(l.f, nft.Word(0)), nft.In("nodeport-ips"),
			nft.MetaL4Proto(nft.Word(0)), nft.CtOriginalDestPort(nft.Word(1)), nft.VMap("affinity-nodeports"),
		}))
	}
	return out
}

// refuse returns the rules for connections that no endpoint serves (contract.md 7):
// Frontends without endpoints get the verdict of their element, unknown ports of a
// live ClusterIP are rejected, and unused addresses of the Service ranges are dropped.
func refuse(l lang, _ *model.NodeView) []rule {
	vip, _ := nft.VIP(l.f)
	return []rule{
		nft.Join(vip, rule{nft.VMap("no-endpoints")}),
		nft.Join(vip, rule{nft.VMap("no-endpoint-ranges")}),
		nft.Join(nft.To(l.f, "cluster-ips"), nft.Does(nft.Goto(rejectChain))),
		nft.Join(nft.To(l.f, "service-cidrs"), nft.Does(nft.Drop())),
	}
}

// refuseInput returns the rules of refuse for packets to this node itself: NodePorts too, and no drop of unused addresses of
// the Service ranges.
func refuseInput(l lang, _ *model.NodeView) []rule {
	vip, _ := nft.VIP(l.f)
	port, _ := nft.L4Port()
	return []rule{
		nft.Join(vip, rule{nft.VMap("no-endpoints")}),
		nft.Join(vip, rule{nft.VMap("no-endpoint-ranges")}),
		nft.Join(nft.To(l.f, "cluster-ips"), nft.Does(nft.Goto(rejectChain))),
		nft.Join(nft.To(l.f, "nodeport-ips"), port, rule{nft.VMap("no-endpoint-nodeports")}),
	}
}

// filterOutput returns the rules for the node's own connections: learn, then refuse.
func filterOutput(l lang, v *model.NodeView) []rule {
	return append(learnIfNew(l, v), jumpIfNew("refuse")(l, v)...)
}
