package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// clusterIPs returns at most one address of each family. A manifest that is read
// without an API server must specify the address, because no component assigns one.
func clusterIPs(spec *corev1.ServiceSpec, r *report) []netip.Addr {
	texts, field := spec.ClusterIPs, "spec.clusterIPs"
	if len(texts) == 0 && spec.ClusterIP != "" {
		texts = []string{spec.ClusterIP}
	}
	if len(texts) == 0 {
		r.add("spec.clusterIP", "missing: without an API server none is assigned; write the address")
		return nil
	}
	if spec.ClusterIP != "" && spec.ClusterIP != texts[0] {
		r.add("spec.clusterIP", "%q is not the first of spec.clusterIPs, which is used", spec.ClusterIP)
	}
	var out []netip.Addr
	for i, text := range texts {
		name := at(field, i)
		if len(spec.ClusterIPs) == 0 {
			name = "spec.clusterIP"
		}
		a, err := parseVIP(text)
		switch {
		case err != nil:
			r.add(name, "%v", err)
		case slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == a.Is4() }):
			r.add(name, "%s is the second %s address: only the first is used", a, model.FamilyOf(a))
		default:
			out = append(out, a)
		}
	}
	return out
}

// externalIPs returns the addresses at their original positions. An entry that
// cannot be used is the zero Addr, so that later Problems name the right entry.
func externalIPs(texts []string, r *report) []netip.Addr {
	const field = "spec.externalIPs"
	var out []netip.Addr
	for i, text := range texts {
		a, err := parseVIP(text)
		switch {
		case err != nil:
			r.add(at(field, i), "%v", err)
			a = netip.Addr{}
		case slices.Contains(out, a):
			r.add(at(field, i), "%s is listed twice", a)
			a = netip.Addr{}
		}
		out = append(out, a)
	}
	return out
}

// ingressIPs returns the addresses of a load balancer that this node may answer for
// itself. It omits those of ipMode Proxy, for which it must not (KEP-1860).
func ingressIPs(ingress []corev1.LoadBalancerIngress, r *report) []netip.Addr {
	const field = "status.loadBalancer.ingress"
	var out []netip.Addr
	for i := range ingress {
		status := &ingress[i]
		if status.IP == "" {
			continue // a host name: the agent does not resolve it
		}
		if mode := status.IPMode; mode != nil && *mode != corev1.LoadBalancerIPModeVIP {
			if *mode != corev1.LoadBalancerIPModeProxy {
				r.add(in(field, i, "ipMode"), "%q is unknown: the address is not used", *mode)
			}
			continue
		}
		a, err := parseVIP(status.IP)
		if err != nil {
			r.add(in(field, i, "ip"), "%v", err)
			continue
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func prefixes(field string, texts []string, r *report) []netip.Prefix {
	var out []netip.Prefix
	for i, text := range texts {
		p, err := parsePrefix(text)
		if err != nil {
			r.add(at(field, i), "%v", err)
			continue
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// guards returns the ranges that may connect. If every entry is bad it returns
// ranges that contain no client, because a typing error must not open an address
// that was meant to be restricted.
func guards(field string, texts []string, r *report) []netip.Prefix {
	out := prefixes(field, texts, r)
	if len(out) == 0 && len(texts) > 0 {
		r.add(field, "no entry is valid: no client is admitted")
		return []netip.Prefix{
			netip.PrefixFrom(netip.IPv4Unspecified(), 32), netip.PrefixFrom(netip.IPv6Unspecified(), 128),
		}
	}
	return out
}
