package iptables

import (
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// probeTarget replaces each owned chain that a sample jumps to.
const probeTarget = probeChain + "-2"

// samples returns, for each table, one rule of every kind that the driver writes, rendered by
// the same code. Jumps to owned chains point to probeTarget instead.
func (d *Driver) samples(f model.Family) map[table][]string {
	out, seen := map[table][]string{}, map[string]bool{}
	add := func(t table, rule string) {
		rule = toProbeTarget(rule)
		if kind := string(byte(t)) + kindOfRule(rule); !seen[kind] {
			seen[kind] = true
			out[t] = append(out[t], rule)
		}
	}
	emit := func(o dataplane.Object) {
		if o.Key.Family != f {
			return
		}
		c, rule := chainOf(o.Key)
		switch {
		case rule != "":
			add(c.table, rule)
		case o.Value != present && o.Value != emptyBody:
			for r := range strings.SplitSeq(o.Value, "\n") {
				add(c.table, r)
			}
		}
	}
	for _, v := range sampleViews(f) {
		d.Base(v, emit)
		for _, fe := range sampleFrontends(f) {
			d.Render(&fe, &v, emit)
		}
	}
	return out
}

// toProbeTarget replaces the owned chain that a rule jumps to by probeTarget.
func toProbeTarget(rule string) string {
	for _, flag := range [...]string{"-j KUBE-", "-g KUBE-"} {
		if i := strings.LastIndex(rule, flag); i >= 0 {
			return rule[:i+3] + probeTarget
		}
	}
	return rule
}

// kindOfRule returns the parts of a rule that iptables may print in its own format: options, and those
// values that name a part of iptables or a state.
func kindOfRule(rule string) string {
	var b strings.Builder
	for _, o := range options(rule) {
		b.WriteString(o.name + " ")
		switch strings.TrimPrefix(o.name, "! ") {
		case "-m", "-p", "-j", "--ctstate", "--reject-with", "--src-type", "--dst-type", "--mode":
			b.WriteString(strings.Join(o.values, " ") + " ")
		case "--dport":
			if strings.Contains(strings.Join(o.values, ""), ":") {
				b.WriteString("range ")
			}
		}
	}
	return b.String()
}

// sampleViews returns NodeViews that differ in how they detect pods.
func sampleViews(f model.Family) []model.NodeView {
	lo, pods := netip.MustParseAddr("127.0.0.1"), []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.0/24")}
	if f == model.IPv6 {
		pods = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64"), netip.MustParsePrefix("2001:db8:2::/64")}
	}
	base := model.NodeView{NodePortAddrs: []netip.Addr{lo, probeAddr(f)}, NodeAddrs: []netip.Addr{lo, probeAddr(f)}, LocalhostNodePorts: true, MasqueradeBit: 14}
	var out []model.NodeView
	for _, l := range []model.LocalDetector{
		{Mode: model.DetectCIDR, CIDRs: pods[:1]}, {Mode: model.DetectCIDR, CIDRs: pods},
		{Mode: model.DetectBridgeInterface, Interface: "probe0"}, {Mode: model.DetectInterfaceNamePrefix, Interface: "probe"},
	} {
		v := base
		v.Local = l
		out = append(out, v)
	}
	base.MasqueradeAll = true
	return append(out, base)
}

// sampleFrontends returns a Frontend of each sort.
func sampleFrontends(f model.Family) []model.Frontend {
	var out []model.Frontend
	some := []model.Backend{{Addr: probeAddr(f), Port: 80, Weight: 1, Local: true}, {Addr: probeAddr(f).Next(), Port: 81, Weight: 2}}
	source := []netip.Prefix{netip.PrefixFrom(probeAddr(f), 16).Masked()}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		for _, k := range []model.FrontendKind{model.ClusterIP, model.NodePort, model.ExternalIP, model.LoadBalancer} {
			one := model.Frontend{Key: model.FrontendKey{Family: f, Protocol: p, Addr: probeAddr(f), Port: 80}, Kind: k,
				Service: model.ServiceKey{Namespace: "fairlead", Name: "probe"}, Port: "p", Verdict: model.Forward, Backends: some}
			if k == model.NodePort {
				one.Key.Addr = netip.Addr{}
			}
			out = append(out, sorts(one, source)...)
		}
	}
	return out
}

// sorts returns the ways in which one Frontend may be served.
func sorts(one model.Frontend, source []netip.Prefix) []model.Frontend {
	out := []model.Frontend{one}
	vary := func(change func(*model.Frontend)) {
		f := one
		change(&f)
		out = append(out, f)
	}
	for _, v := range []model.Verdict{model.Reject, model.Drop} {
		vary(func(f *model.Frontend) { f.Verdict, f.Backends = v, nil })
		vary(func(f *model.Frontend) {
			f.Verdict, f.Backends, f.Guarded, f.SourceRanges = v, nil, f.Kind != model.ClusterIP, source
		})
	}
	vary(func(f *model.Frontend) { f.AffinityTimeout = time.Hour })
	vary(func(f *model.Frontend) { f.ConsistentHash = true })
	vary(func(f *model.Frontend) { f.ConsistentHash, f.AffinityTimeout = true, time.Hour })
	vary(func(f *model.Frontend) {
		f.Key.LastPort = 90
		f.Backends = []model.Backend{{Addr: f.Backends[0].Addr, Weight: 1}, {Addr: f.Backends[1].Addr, Weight: 1}}
	})
	if one.Kind == model.ClusterIP {
		return out
	}
	vary(func(f *model.Frontend) {
		f.LocalOnly, f.LocalVerdict, f.LocalBackends, f.HealthCheckNodePort = true, model.Forward, f.Backends[:1], 30000
	})
	vary(func(f *model.Frontend) { f.LocalOnly, f.LocalVerdict = true, model.Drop })
	vary(func(f *model.Frontend) {
		f.Verdict, f.Backends, f.LocalOnly, f.LocalVerdict, f.LocalBackends = model.Drop, nil, true, model.Forward, f.Backends[:1]
	})
	vary(func(f *model.Frontend) { f.Masquerade, f.Guarded, f.SourceRanges = true, true, source })
	return out
}
