package main

import (
	"fmt"
	"strconv"
	"strings"
)

// variant is one way to accelerate, or the way without acceleration.
type variant struct {
	name  string
	mode  string   // of the agent
	flags []string // of the agent
	acct  bool     // conntrack counts without a rule that needs it
	rules string   // for nft, in addition to the agent's rules; "" for none
	// native writes into the agent's own table, on the node; nil for none.
	native func() error
}

// inAgentsTable reports whether the agent must rebuild its table after this variant.
func (v *variant) inAgentsTable() bool {
	return v.native != nil || strings.Contains(v.rules, "table ip fairlead ")
}

const gate = "--feature-gates=KubeProxyAcceleration=true"

// off is the variant with which all others are compared.
func off(mode string) variant { return variant{name: "off", mode: mode} }

func threshold(mode string, n int) variant {
	return variant{name: strconv.Itoa(n), mode: mode, flags: []string{gate, "--offload-packet-threshold", strconv.Itoa(n)}}
}

// thresholds returns the thresholds of the KEP's evaluation. 0, at once, is set up by hand: for the agent it
// means never.
func thresholds(mode string) []variant {
	all := []variant{off(mode), {name: "0", mode: mode, rules: table("ip", devices, ours("")) + table("ip6", devices, "")}}
	for _, n := range []int{2, 4, 8, 20, 50} {
		all = append(all, threshold(mode, n))
	}
	return all
}

const (
	devices = "devices = { nc, ns };"
	none    = ""
	set     = "set cluster-ips { type ipv4_addr; elements = { " + vip + " } }\n"
	take    = "ct original ip daddr @cluster-ips counter flow add @f"
)

// ours returns two rules as in the agent's first layout, with a test before the lookup.
func ours(test string) string {
	return "chain forward { type filter hook forward priority 100;\n" +
		"ct status dnat " + test + " " + take + "\nct status dnat " + test + " " + take + "\n}\n"
}

// guarded returns rules with one test for both.
func guarded(test string) string {
	return "chain take { ct status dnat " + take + "\n}\nchain forward { type filter hook forward priority 100; " + test + " jump take\n}\n"
}

func table(family, devices, rest string) string {
	sets := set
	if family != "ip" {
		sets = "" // the rules are of IPv4
	}
	return fmt.Sprintf("table %s bench {\nflowtable f { hook ingress priority 0; %s counter; }\n%s%s}\n", family, devices, sets, rest)
}

// inside puts the test and the rules into the nftables mode's chain in the forward hook, in that mode's own
// table.
func inside(devices, test string) string {
	return "table ip fairlead {\nflowtable f { hook ingress priority 0; " + devices + " counter; }\n" + strings.ReplaceAll(set, "cluster-ips", "bench-ips") +
		"chain take { ct status dnat " + strings.ReplaceAll(take, "cluster-ips", "bench-ips") + "\n}\nchain filter-forward { " + test + " jump take\n}\n}\n"
}

// placements returns variants that test the threshold of 20 in different places and orders.
func placements() []variant {
	const kep = "chain forward { type filter hook forward priority -110; ct original ip daddr @cluster-ips ct packets > 20 counter flow add @f\n}\n"
	byHand := func(name, rules string) variant { return variant{name: name, mode: "nftables", rules: rules} }
	return []variant{
		off("nftables"),
		{name: "conntrack counts, nothing else", mode: "nftables", acct: true},
		byHand("flowtable without a rule", table("ip", devices, none)),
		byHand("flowtables of both families without a rule", table("ip", devices, none)+table("ip6", devices, none)),
		byHand("the KEP's: set, then packets", table("ip", devices, kep)),
		byHand("dnat, packets, set; twice", table("ip", devices, ours("ct packets > 20"))),
		byHand("packets once, then jump", table("ip", devices, guarded("ct packets > 20"))),
		byHand("original packets once, then jump", table("ip", devices, guarded("ct original packets > 10"))),
		byHand("direction, then packets", table("ip", devices, guarded("ct direction original ct packets > 20"))),
		byHand("bits of packets, then packets, no device", table("ip", none, guarded("ct packets & 0xfffffffffffffff0 != 0 ct packets > 20"))),
		byHand("packets once, no device", table("ip", none, guarded("ct packets > 20"))),
		byHand("in the forward chain that is there", inside(devices, "ct packets > 20")),
		byHand("in the forward chain that is there, no device", inside(none, "ct packets > 20")),
		{name: "one word, in the forward chain that is there", mode: "nftables", acct: true, native: oneWord(1)},
		{name: "one word, in the forward chain that is there, both families", mode: "nftables", acct: true, native: oneWord(2)},
		threshold("nftables", 20),
	}
}
