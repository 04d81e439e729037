package ipvs

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// layout is the version of what the agent writes: a table with another layout is rebuilt.
const layout = "fairlead-ipvs layout 1"

// present is the value of an object that has no other value.
const present = "\x01"

// beforeIPVS is before the hooks of IPVS, which takes packets at input (98) and output (-98), and before the translation of any
// program at output (-100): the destination is still the Service's.
const beforeIPVS = -110

// afterDNAT is after every translation at prerouting (-100): a packet that another data plane or a host port has translated is not marked.
const afterDNAT = -90

// takenMark returns the bit of the packet mark by which packets to taken ports are routed with the routing table ipvs.RouteTable. It is set at
// prerouting and cleared at input. Bit 12 is free of the marks of kube-proxy (14, 15), portmap (13), Cilium (8 to 11), Calico (16 to 31).
func takenMark(v *model.NodeView) uint32 {
	if v.MasqueradeBit == 12 {
		return 1 << 13
	}
	return 1 << 12
}

// Chains to which verdicts jump.
const (
	chainMasquerade  = "masquerade"   // external traffic under policy Cluster
	chainCluster     = "cluster"      // externalTrafficPolicy Local, with endpoints on this node
	chainLocal       = "local"        // the same without endpoints: for pods and the node only
	chainLocalDrop   = "local-drop"   // the same without: for pods and the node only
	chainLocalReject = "local-reject" // the same
	chainReject      = "reject-chain"
	chainPrerouting  = "filter-prerouting" // marks packets to taken ports
	verdictServe     = "serve"
	verdictDrop      = "drop"
)

func verdictOf(value string) nft.Verdict {
	switch value {
	case verdictServe:
		return nft.Accept()
	case verdictDrop:
		return nft.Drop()
	}
	return nft.Goto(value)
}

func valueOf(v nft.Verdict) string {
	switch v {
	case nft.Accept():
		return verdictServe
	case nft.Drop():
		return verdictDrop
	}
	if v.Code == nft.CodeGoto {
		return v.Chain
	}
	return "a foreign verdict" // Load only: never desired
}

// chainDef declares a chain that every table has. hook is nil if it is not a base chain.
type chainDef struct {
	name  string
	hook  *nft.Hook
	rules func(l lang, v *model.NodeView) []rule
}

func hook(typ string, num nft.HookNum, prio int32) *nft.Hook {
	return &nft.Hook{Type: typ, Num: num, Priority: prio, Policy: nft.PolicyAccept}
}

// chainDefs returns the chains of each table. A chain comes before those that jump to it.
func chainDefs() []chainDef {
	return []chainDef{
		{name: chainReject, rules: rejectRules},
		{name: chainMasquerade, rules: func(_ lang, v *model.NodeView) []rule {
			return []rule{nft.Join(nft.Mark(markBits(v)), nft.Does(nft.Accept()))}
		}},
		{name: chainCluster, rules: clusterRules},
		{name: chainLocal, rules: func(l lang, v *model.NodeView) []rule { return localRules(l, v, nft.Accept()) }},
		{name: chainLocalDrop, rules: func(l lang, v *model.NodeView) []rule { return localRules(l, v, nft.Drop()) }},
		{name: chainLocalReject, rules: func(l lang, v *model.NodeView) []rule { return localRules(l, v, nft.Goto(chainReject)) }},
		{name: "guard-check", rules: func(l lang, _ *model.NodeView) []rule {
			key, next := nft.VIP(l.f)
			return allowed(l, key, next, "fw-allowed")
		}},
		{name: "guard-check-nodeports", rules: func(l lang, _ *model.NodeView) []rule {
			key, next := nft.L4Port()
			return allowed(l, key, next, "fw-allowed-nodeports")
		}},
		{name: "guard", rules: guardRules},
		{name: "dispatch", rules: dispatchRules},
		{name: "dead-addresses", rules: deadRules},
		{name: chainPrerouting, hook: hook("filter", nft.HookPrerouting, afterDNAT), rules: preroutingRules},
		{name: "filter-input", hook: hook("filter", nft.HookInput, beforeIPVS), rules: inputRules},
		{name: "filter-forward", hook: hook("filter", nft.HookForward, beforeIPVS), rules: forwardRules},
		{name: "filter-output", hook: hook("filter", nft.HookOutput, beforeIPVS), rules: outputRules},
		{name: "nat-postrouting", hook: hook("nat", nft.HookPostrouting, 100), rules: postroutingRules},
	}
}

// rejectRules returns the rules that reject. TCP gets a reset, because a TCP client on this host would wait a second before it acts on the
// ICMP error.
func rejectRules(l lang, _ *model.NodeView) []rule {
	tcp := rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{byte(model.TCP)}), nft.RejectReset()}
	return []rule{tcp, {nft.RejectPort(l.f)}}
}

// clusterRules returns the rules that masquerade every packet that does not come from a pod, if it is known which packets are a pod's
// (contract.md 4).
func clusterRules(l lang, v *model.NodeView) []rule {
	masquerade := nft.Join(nft.Mark(markBits(v)), nft.Does(nft.Accept()))
	if v.MasqueradeAll {
		return []rule{masquerade}
	}
	pods := l.fromPods(v)
	if len(pods) == 0 {
		return []rule{nft.Does(nft.Accept())}
	}
	var out []rule
	for _, p := range pods {
		out = append(out, nft.Join(p, nft.Does(nft.Accept())))
	}
	return append(out, masquerade)
}

// localRules returns the rules of externalTrafficPolicy Local: pods are served without masquerade, the node with it.
func localRules(l lang, v *model.NodeView, others nft.Verdict) []rule {
	var out []rule
	for _, p := range l.fromPods(v) {
		out = append(out, nft.Join(p, nft.Does(nft.Accept())))
	}
	return append(out, nft.Join(nft.FromThisNode(), nft.Mark(markBits(v)), nft.Does(nft.Accept())), nft.Does(others))
}

// allowed returns a positive match and a drop, because nft cannot list a negated match.
func allowed(l lang, key rule, next int, set string) []rule {
	return []rule{
		nft.Join(key, rule{nft.SourceAddr(l.f, nft.Word(next)), nft.In(set)}, nft.Does(nft.Return())),
		nft.Does(nft.Drop()),
	}
}

func guardRules(l lang, _ *model.NodeView) []rule {
	vip, _ := nft.VIP(l.f)
	port, _ := nft.L4Port()
	return []rule{
		nft.Join(vip, rule{nft.In("fw-guarded")}, nft.Does(nft.Goto("guard-check"))),
		nft.Join(nft.To(l.f, "nodeport-ips"), port, rule{nft.In("fw-guarded-nodeports")}, nft.Does(nft.Goto("guard-check-nodeports"))),
	}
}

// dispatchRules returns the rules of all Services. A packet that IPVS does not know must not reach programs that listen on the node:
// the addresses on the device are the node's own.
func dispatchRules(l lang, _ *model.NodeView) []rule {
	vip, _ := nft.VIP(l.f)
	port, _ := nft.L4Port()
	out := []rule{nft.Does(nft.Jump("guard")), nft.Join(vip, rule{nft.VMap("services")}), nft.Join(nft.To(l.f, "nodeport-ips"), port, rule{nft.VMap("nodeports")})}
	for _, p := range [...]model.Protocol{model.TCP, model.UDP, model.SCTP} { // not ICMP: an address on the device answers it
		only := rule{nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{byte(p)})} // first, because it costs less than a lookup
		out = append(out, nft.Join(only, nft.To(l.f, "addresses"), rule{nft.CountPackets()}, nft.Does(nft.Goto(chainReject))))
	}
	return out
}

// deadRules returns the rules that drop packets to the addresses of the Service ranges that belong to no Service.
func deadRules(l lang, v *model.NodeView) []rule {
	out := []rule{nft.Join(nft.To(l.f, "addresses"), nft.Does(nft.Return()))}
	for _, p := range ofFamily(v.ServiceCIDRs, l.f) {
		out = append(out, nft.Join(l.inside(nft.DestAddr(l.f, nft.Word(0)), p), nft.Does(nft.Drop())))
	}
	return out
}

// preroutingRules returns the rules that mark packets to taken ports, and ICMP errors about the answers from these ports: without the
// errors no path MTU is discovered (RFC 1191, RFC 8201).
func preroutingRules(l lang, v *model.NodeView) []rule {
	vip, _ := nft.VIP(l.f)
	protocol, inner := byte(unix.IPPROTO_ICMP), uint32(8) // the packet that caused the error begins behind 8 bytes
	source, upper, port := inner+12, inner+9, inner+20    // in a header of IPv4 without options
	if l.f == nft.IPv6 {
		protocol, source, upper, port = unix.IPPROTO_ICMPV6, inner+8, inner+6, inner+40
	}
	about := rule{
		nft.MetaL4Proto(nft.Word(0)), nft.Equal(nft.Word(0), []byte{protocol}),
		nft.Payload(nft.Word(0), unix.NFT_PAYLOAD_TRANSPORT_HEADER, source, uint32(4*l.addr)),
		nft.Payload(nft.Word(l.addr), unix.NFT_PAYLOAD_TRANSPORT_HEADER, upper, 1),
		nft.Payload(nft.Word(l.addr+1), unix.NFT_PAYLOAD_TRANSPORT_HEADER, port, 2),
		nft.In("taken"),
	}
	return []rule{nft.Join(vip, rule{nft.In("taken")}, nft.Mark(takenMark(v))), nft.Join(about, nft.Mark(takenMark(v)))}
}

func inputRules(_ lang, v *model.NodeView) []rule {
	return []rule{nft.Unmark(takenMark(v)), nft.Join(nft.NewConnection(), nft.Does(nft.Jump("dispatch")))}
}

// forwardRules returns the rules for forwarded packets: a packet to a Service without endpoints is not delivered locally if the address may
// be another host's.
func forwardRules(lang, *model.NodeView) []rule {
	return []rule{
		nft.Join(nft.NewConnection(), nft.Does(nft.Jump("dispatch"))),
		nft.Join(nft.NewConnection(), nft.Does(nft.Jump("dead-addresses"))),
	}
}

// outputRules returns the rules for the node's own packets: a connection of the node to an address on the device has that address as its
// source too.
func outputRules(l lang, v *model.NodeView) []rule {
	return []rule{
		nft.Join(nft.NewConnection(), nft.From(l.f, "addresses"), nft.Mark(markBits(v))),
		nft.Join(nft.NewConnection(), nft.Does(nft.Jump("dispatch"))),
		nft.Join(nft.NewConnection(), nft.Does(nft.Jump("dead-addresses"))),
	}
}

// postroutingRules returns the rules that masquerade. Hairpin: an endpoint that connects to itself must see another source address, or its
// answers would bypass the translation.
func postroutingRules(l lang, v *model.NodeView) []rule {
	pair := rule{
		nft.SourceAddr(l.f, nft.Word(0)), nft.DestAddr(l.f, nft.Word(l.addr)), nft.MetaL4Proto(nft.Word(2 * l.addr)),
		nft.DestPort(nft.Word(2*l.addr + 1)), nft.In("hairpin"),
	}
	return []rule{nft.Join(nft.Unmark(markBits(v)), rule{nft.Masquerade()}), nft.Join(pair, rule{nft.Masquerade()})}
}

// Base implements dataplane.Driver.
func (d *Driver) Base(view model.NodeView, emit func(dataplane.Object)) {
	for i, f := range d.families {
		put := func(k dataplane.Kind, id, value string) {
			emit(dataplane.Object{Key: dataplane.Key{Kind: k, Family: f, ID: id}, Value: value})
		}
		put(dataplane.KindRoot, "", layout)
		for _, def := range setDefs() {
			put(kindSet, def.name, present)
		}
		for _, c := range chainDefs() {
			put(kindChain, c.name, d.write(func() []rule { return c.rules(langOf(f), &view) }))
		}
		if i == 0 {
			put(kindDevice, ipvs.Device, present)
		}
		put(kindRule, "", valueOfRule(takenMark(&view)))
		for _, a := range view.NodePortAddrs {
			if model.FamilyOf(a) == f && !a.IsLoopback() {
				put(kindNodePortIP, string(nft.AppendAddr(nil, a)), present)
			}
		}
	}
}

// valueOfRule returns the value of a routing rule; "" if it is absent.
func valueOfRule(mark uint32) string {
	if mark == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(mark), 16)
}

// write caches the function that makes a chain's rules and returns the digest of the rules.
func (d *Driver) write(rules func() []rule) string {
	var tags [][]byte
	for _, r := range rules() {
		tags = append(tags, tag(r))
	}
	sum := digest(tags)
	d.rules[sum] = rules
	return sum
}
