package convert

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// leavingTaint is the taint that the cluster autoscaler adds to a node before it
// removes the node. Load balancers must stop sending to such a node (KEP-3836).
const leavingTaint = "ToBeDeletedByClusterAutoscaler"

// Node converts a Node. The result is never nil.
func (c *Converter) Node(o *corev1.Node) (*model.Node, []model.Problem) {
	r := &report{kind: "Node", name: o.Name}
	n := &model.Node{
		Name:    c.intern(o.Name),
		Zone:    c.intern(o.Labels[corev1.LabelTopologyZone]),
		Leaving: o.DeletionTimestamp != nil,
	}
	for i := range o.Spec.Taints {
		n.Leaving = n.Leaving || o.Spec.Taints[i].Key == leavingTaint
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for i := range o.Status.Addresses {
			entry := &o.Status.Addresses[i]
			if entry.Type != kind {
				continue
			}
			a, err := parseAddr(entry.Address)
			if err != nil {
				r.add(in("status.addresses", i, "address"), "%v", err)
				continue
			}
			n.Addrs = append(n.Addrs, a)
		}
	}
	cidrs, field := o.Spec.PodCIDRs, "spec.podCIDRs"
	if len(cidrs) == 0 && o.Spec.PodCIDR != "" {
		cidrs, field = []string{o.Spec.PodCIDR}, "spec.podCIDR"
	}
	n.PodCIDRs = prefixes(field, cidrs, r)
	return n, r.done()
}

// ServiceCIDR returns the ranges of a ServiceCIDR. The ranges of an object that is
// being deleted still count: its addresses may be in use until it is gone.
func (c *Converter) ServiceCIDR(o *networkingv1.ServiceCIDR) ([]netip.Prefix, []model.Problem) {
	r := &report{kind: "ServiceCIDR", name: strings.Clone(o.Name)}
	out := prefixes("spec.cidrs", o.Spec.CIDRs, r)
	return out, r.done()
}
