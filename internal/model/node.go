package model

import (
	"net/netip"
	"slices"
)

// Node is the Kubernetes Node object of this machine.
type Node struct {
	Name     string
	Zone     string         // label topology.kubernetes.io/zone
	Addrs    []netip.Addr   // status.addresses InternalIP then ExternalIP, as listed
	PodCIDRs []netip.Prefix // spec.podCIDRs
	// Leaving is true if the node has a deletionTimestamp or the taint
	// ToBeDeletedByClusterAutoscaler (KEP-3836): /healthz then returns 503.
	Leaving bool
}

// Equal reports whether two Nodes are equal for every consumer.
func (n *Node) Equal(o *Node) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Name == o.Name && n.Zone == o.Zone && n.Leaving == o.Leaving &&
		slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.PodCIDRs, o.PodCIDRs)
}

// HostAddrs are the current addresses of the kernel's links, sorted, including
// loopback and link-local ones.
type HostAddrs struct {
	Addrs []HostAddr // nil: not known yet
	Links []Link     // that are up, by name; nil if no consumer requested them
}

// Link is a network device. A later device may have the same name, but not the same index.
type Link struct {
	Name  string
	Index int
	MTU   int // bytes
}

// HostAddr is one address of one link.
type HostAddr struct {
	Prefix netip.Prefix // address with its on-link length
	Link   string       // device name
}
