package iptables

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Base implements dataplane.Driver.
func (d *Driver) Base(view model.NodeView, emit func(dataplane.Object)) {
	for _, f := range d.families {
		b := base{writer{f, emit}, &view, d.p.TCPBeLiberal, d.counts}
		b.marks()
		for _, t := range tables {
			for _, name := range sharedChains(t) {
				b.put(kindBucket, chainRef{f, t, name}.id(), present)
			}
		}
		b.fixed()
		b.lines()
		for _, j := range jumps() {
			if j.only != 0 && j.only != f {
				continue
			}
			b.put(kindJump, chainRef{f, j.table, j.chain}.line(j.rule), present)
		}
	}
}

// base renders the fixed part of one family.
type base struct {
	writer
	view    *model.NodeView
	liberal bool
	counts  bool
}

func (b *base) bit() string { return fmt.Sprintf("0x%x", uint32(1)<<(b.view.MasqueradeBit&31)) }

func (b *base) marks() {
	b.chain(kindMark, nat, markMasq, "-j MARK --set-xmark "+b.bit()+"/"+b.bit())
	b.chain(kindMark, filter, rejectChain, "-p tcp"+reject(model.TCP, b.family), reject(model.UDP, b.family)[1:])
	tests, not := fromPods(&b.view.Local, b.family)
	if len(tests) == 0 || not != "" || b.view.MasqueradeAll {
		return
	}
	var rules []string
	for _, t := range tests {
		rules = append(rules, t+" -j RETURN")
	}
	b.chain(kindMark, nat, markOutside, append(rules, "-j "+markMasq)...)
}

// lines are the last lines of shared chains: addresses of this node.
func (b *base) lines() {
	b.line(nat, servicesChain, comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")[1:]+" "+toLocal+" -j "+nodePortsChain)
	b.line(filter, externalChain, toLocal+" -j "+externalNode)
	b.line(filter, firewallChain, toLocal+" -j "+firewallNode)
}

func (b *base) fixed() {
	for _, c := range [...]struct {
		table table
		chain string
		to    string
	}{{nat, nodePortsChain, portsChain}, {filter, externalNode, externalPort}, {filter, firewallNode, firewallPort}} {
		var rules []string
		for _, a := range b.view.NodePortAddrs {
			if model.FamilyOf(a) == b.family {
				rules = append(rules, dest(a)+" -j "+c.to)
			}
		}
		b.chain(kindBase, c.table, c.chain, rules...)
	}
	mark := "-m mark --mark " + b.bit() + "/" + b.bit()
	b.chain(kindBase, nat, postrouting,
		"-m conntrack --ctstate DNAT -j "+hairpinChain,
		"-m mark ! --mark "+b.bit()+"/"+b.bit()+" -j RETURN",
		"-j MARK --set-xmark "+b.bit()+"/0x0",
		comment("kubernetes service traffic requiring SNAT")[1:]+" "+masquerade)
	forward := []string{
		comment("kubernetes forwarding rules")[1:] + " " + mark + " -j ACCEPT",
		comment("kubernetes forwarding conntrack rule")[1:] + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		comment("kubernetes forwarding of connections that are not answered yet")[1:] + " " + unanswered + " -j ACCEPT",
	}
	if !b.liberal { // #74839: an out-of-window packet would reach the pod untranslated, and draw a reset
		invalid := "-m conntrack --ctstate INVALID"
		if b.counts {
			invalid += " " + countInvalid
		}
		forward = append([]string{invalid + " -j DROP"}, forward...)
	}
	b.chain(kindBase, filter, forwardChain, forward...)
	for _, t := range tables {
		b.chain(kindBase, t, canaryChain)
	}
	if b.family == model.IPv4 {
		b.chain(kindBase, mangle, localnet, "-j DROP")
	}
}

// unanswered matches further packets of a masqueraded connection that has not been answered:
// datagrams to a silent receiver, a repeated SYN. The nat table marks the first packet
// only, and the connection is not ESTABLISHED before the answer (kubernetes#72511). A
// connection has a new source only once its first packet has passed FORWARD, so that the
// rule lets nothing through that was dropped there.
const unanswered = "-m conntrack --ctstate DNAT -m conntrack --ctstate SNAT"

// jump is a rule in a built-in chain.
type jump struct {
	table table
	chain string
	rule  string
	only  model.Family // 0: both
}

// fromOutside are packets for 127.0.0.0/8 that did not come from this node. NodePorts
// on 127.0.0.1 need route_localnet, and with it the kernel lets such packets in,
// to everything that listens on loopback only (CVE-2020-8558, kubernetes#90259). The
// mangle table sees them before any translation, so that answers to the node's own
// connections to 127.0.0.1 still carry another destination, and what is dropped
// reaches no NodePort either. kube-proxy's rule stands behind nat and lets through
// what claims to come from 127.0.0.0/8.
const fromOutside = "-d 127.0.0.0/8 ! -i lo"

// jumps are kube-proxy's, letter by letter, so that its own are taken over, and
// one of this driver's. They are inserted before the existing rules, the last one first.
func jumps() []jump {
	said := func(s string) string { return comment(s)[1:] }
	portals := said("kubernetes service portals") + " -j " + servicesChain
	external := isNew + comment("kubernetes externally-visible service portals") + " -j " + externalChain
	guard := isNew + comment("kubernetes load balancer firewall") + " -j " + firewallChain
	services := isNew + comment("kubernetes service portals") + " -j " + servicesChain
	return []jump{
		{table: nat, chain: "PREROUTING", rule: portals},
		{table: nat, chain: "OUTPUT", rule: portals},
		{table: nat, chain: "POSTROUTING", rule: said("kubernetes postrouting rules") + " -j " + postrouting},
		{table: filter, chain: "INPUT", rule: external},
		{table: filter, chain: "INPUT", rule: said("kubernetes health check service ports") + " -j " + nodePortsChain},
		{table: filter, chain: "INPUT", rule: guard},
		{table: filter, chain: "FORWARD", rule: external},
		{table: filter, chain: "FORWARD", rule: services},
		{table: filter, chain: "FORWARD", rule: said("kubernetes forwarding rules") + " -j " + forwardChain},
		{table: filter, chain: "FORWARD", rule: guard},
		{table: filter, chain: "OUTPUT", rule: external},
		{table: filter, chain: "OUTPUT", rule: services},
		{table: filter, chain: "OUTPUT", rule: guard},
		{table: mangle, chain: "PREROUTING", rule: fromOutside + comment("block incoming localnet connections") + " -j " + localnet, only: model.IPv4},
	}
}
