package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

func (v *validator) fillDetectLocal(c *Config, w *wire) {
	d := &c.DetectLocal
	d.Mode, d.Bridge, d.Prefix = LocalMode(w.DetectLocalMode), w.DetectLocal.BridgeInterface, w.DetectLocal.InterfaceNamePrefix
	switch d.Mode {
	case NodeCIDR:
	case ClusterCIDR:
		d.ClusterCIDRs = v.clusterCIDRs(w.ClusterCIDR)
	case BridgeInterface:
		if d.Bridge == "" {
			v.bad("detectLocal.bridgeInterface", "", "must be set for detectLocalMode BridgeInterface")
		}
	case InterfaceNamePrefix:
		if d.Prefix == "" {
			v.bad("detectLocal.interfaceNamePrefix", "", "must be set for detectLocalMode InterfaceNamePrefix")
		}
	default:
		v.bad("detectLocalMode", w.DetectLocalMode, "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
}

// clusterCIDRs is validated in ClusterCIDR mode only. In other modes it has no
// effect, and kube-proxy starts with any value.
func (v *validator) clusterCIDRs(value string) []netip.Prefix {
	if value == "" {
		return nil
	}
	prefixes := v.cidrs("clusterCIDR", strings.Split(value, ","))
	v4 := func(p netip.Prefix) bool { return p.Addr().Is4() }
	if n := count(prefixes, v4); n > 1 || len(prefixes)-n > 1 {
		v.bad("clusterCIDR", value, "must hold at most one CIDR of each family")
	}
	return prefixes
}

func (v *validator) fillNodePorts(c *Config, values []string) {
	if slices.Equal(values, []string{primary}) {
		c.NodePorts.Primary = true
		return
	}
	if slices.Contains(values, primary) {
		v.bad("nodePortAddresses", strings.Join(values, ","), "must be CIDRs or the single word primary")
		values = slices.DeleteFunc(slices.Clone(values), func(s string) bool { return s == primary })
	}
	c.NodePorts.CIDRs = v.cidrs("nodePortAddresses", values)
}

func (v *validator) cidrs(field string, values []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range values {
		p, ok := parseCIDR(s)
		if !ok {
			v.bad(field, s, "is not a CIDR such as 10.0.0.0/16 or fd00:1::/64")
			continue
		}
		out = append(out, p)
	}
	return out
}

func (v *validator) fillConntrack(c *Config, w *wireConntrack) {
	c.Conntrack = Conntrack{
		MaxPerCore: int(*w.MaxPerCore), Min: int(*w.Min), TCPBeLiberal: w.TCPBeLiberal,
		TCPEstablished: v.notNegative("conntrack.tcpEstablishedTimeout", *w.TCPEstablishedTimeout),
		TCPCloseWait:   v.notNegative("conntrack.tcpCloseWaitTimeout", *w.TCPCloseWaitTimeout),
		UDP:            v.notNegative("conntrack.udpTimeout", w.UDPTimeout),
		UDPStream:      v.notNegative("conntrack.udpStreamTimeout", w.UDPStreamTimeout),
	}
	if c.Conntrack.MaxPerCore < 0 {
		v.bad("conntrack.maxPerCore", c.Conntrack.MaxPerCore, "must not be negative")
	}
	if c.Conntrack.Min < 0 {
		v.bad("conntrack.min", c.Conntrack.Min, "must not be negative")
	}
}

// fillIPVS validates the section in ipvs mode only, as kube-proxy does.
func (v *validator) fillIPVS(c *Config, w *wireIPVS) {
	if c.Mode != "ipvs" {
		return
	}
	c.IPVS = IPVS{
		Scheduler: w.Scheduler, StrictARP: w.StrictARP,
		ExcludeCIDRs: v.cidrs("ipvs.excludeCIDRs", w.ExcludeCIDRs),
		TCP:          v.notNegative("ipvs.tcpTimeout", w.TCPTimeout),
		TCPFin:       v.notNegative("ipvs.tcpFinTimeout", w.TCPFinTimeout),
		UDP:          v.notNegative("ipvs.udpTimeout", w.UDPTimeout),
	}
}

func (v *validator) notNegative(field string, d duration) time.Duration {
	if d < 0 {
		v.bad(field, time.Duration(d), "must not be negative")
	}
	return time.Duration(d)
}

func count[T any](s []T, is func(T) bool) int {
	n := 0
	for _, e := range s {
		if is(e) {
			n++
		}
	}
	return n
}
