package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Admit returns the Service without the addresses that it must not take on this node,
// and a Problem for each of them. It returns the Service itself if there are none.
// Every decision about who serves the Service, or claims its addresses, must use the
// Service that Admit returns.
//
// An external IP is written by each tenant who may write a Service, so it must not
// take a connection that is meant for another Service (CVE-2020-8554). It may be an
// address of this node, as in kube-proxy: clusters on bare metal publish Services
// there, or on an address that VRRP moves between nodes. It takes the Service's ports
// of that address and no others; Self.NoExternalIPsOfNode denies it. Load balancer
// addresses are written by controllers and may always be the node's: k3s' servicelb
// names them.
func Admit(svc *model.Service, node *Self) (*model.Service, []model.Problem) {
	if svc == nil || !svc.Proxied || len(svc.ExternalIPs) == 0 && len(svc.LoadBalancerIPs) == 0 {
		return svc, nil
	}
	r := refusals{svc: svc, node: *node}
	balancers := r.filter(func(int) string { return field(model.LoadBalancer) }, svc.LoadBalancerIPs, neverServed)
	var external []netip.Addr
	if node.NoExternalIPs {
		r.noExternalIPs()
	} else {
		external = r.filter(func(i int) string { return fmt.Sprintf("%s[%d]", field(model.ExternalIP), i) }, svc.ExternalIPs, r.notExternal)
	}
	if len(balancers) == len(svc.LoadBalancerIPs) && len(external) == len(svc.ExternalIPs) {
		return svc, nil
	}
	admitted := *svc
	admitted.LoadBalancerIPs, admitted.ExternalIPs = balancers, external
	return &admitted, r.problems
}

// refusals collects the Problems of the addresses of one Service that are not admitted.
type refusals struct {
	svc      *model.Service
	node     Self
	problems []model.Problem
}

func (r *refusals) complain(field, format string, args ...any) {
	r.problems = append(r.problems, model.Problem{Object: "Service " + r.svc.Key.String(), Field: field, Reason: fmt.Sprintf(format, args...)})
}

// filter returns the addresses for which why returns "", and records a Problem for the
// others. An address that the source refused already is the zero Addr.
func (r *refusals) filter(field func(int) string, list []netip.Addr, why func(netip.Addr) string) (out []netip.Addr) {
	for i, a := range list {
		if !a.IsValid() {
			continue
		}
		if reason := why(a); reason != "" {
			r.complain(field(i), "%s is %s: it is not served", a, reason)
			continue
		}
		out = append(out, a)
	}
	return out
}

func (r *refusals) noExternalIPs() {
	if slices.ContainsFunc(r.svc.ExternalIPs, netip.Addr.IsValid) {
		r.complain(field(model.ExternalIP), "not served, because the feature gate AllowServiceExternalIPs is off")
	}
}

// notExternal returns the reason why an address may not be an external IP; "" if it
// may.
func (r *refusals) notExternal(a netip.Addr) string {
	if why := neverServed(a); why != "" {
		return why
	}
	switch {
	case slices.Contains(r.svc.LoadBalancerIPs, a):
		return "" // served as that
	case r.node.NoExternalIPsOfNode && slices.Contains(r.node.Addrs, a):
		return "an address of this node"
	case contains(r.node.ServiceCIDRs, a):
		return "inside the cluster's Service ranges"
	}
	return ""
}

// ofNode returns the external IPs of a Service, as Admit returned it, that are addresses
// of this node and no load balancer's.
func ofNode(served *model.Service, node *Self) (out []netip.Addr) {
	if served == nil {
		return nil
	}
	for _, a := range served.ExternalIPs {
		if slices.Contains(node.Addrs, a) && !slices.Contains(served.LoadBalancerIPs, a) {
			out = append(out, a)
		}
	}
	return out
}

// neverServed returns the reason why an address cannot be served for any Service from
// outside the cluster, whatever field it is in; "" if it can.
func neverServed(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast():
		return "a multicast address"
	}
	return ""
}
