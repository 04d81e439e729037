package model

import (
	"net/netip"
	"slices"
)

// Node is our own Kubernetes Node object.
type Node struct {
	Name     string
	Zone     string         // label topology.kubernetes.io/zone
	Addrs    []netip.Addr   // status.addresses InternalIP then ExternalIP, as listed
	PodCIDRs []netip.Prefix // spec.podCIDRs
	// Leaving is true when the node has a deletionTimestamp or the taint
	// ToBeDeletedByClusterAutoscaler (KEP-3836): /healthz then says 503.
	Leaving bool
}

// Equal reports whether two nodes are the same to every consumer.
func (n *Node) Equal(o *Node) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Name == o.Name && n.Zone == o.Zone && n.Leaving == o.Leaving &&
		slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.PodCIDRs, o.PodCIDRs)
}

// HostAddrs are the addresses that the kernel's links carry right now, sorted,
// loopback and link-local ones included.
type HostAddrs struct {
	Addrs []HostAddr // nil: not known yet
	Links []Link     // that are up, by name; nil where nobody asked for them
}

// Link is a network device. A later one may have the same name, but not the index.
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
