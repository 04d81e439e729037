package model

import "net/netip"

// NodeView is the part of policy's output that describes this node. A data plane
// needs it in addition to the Frontends.
type NodeView struct {
	NodePortAddrs []netip.Addr   // addresses on which NodePorts answer, sorted, both families; empty = none
	NodePortsBy   string         // the reason for these addresses, for an operator
	HealthAddrs   []netip.Addr   // where health check node ports listen, sorted; 0.0.0.0 and :: are every address of their family; empty = nowhere
	NodeAddrs     []netip.Addr   // all addresses of this node, sorted
	Local         LocalDetector  // distinguishes pod traffic from other traffic
	ServiceCIDRs  []netip.Prefix // new connections to addresses here that are no Service's are dropped; empty = unknown
	MasqueradeAll bool
	// CountRefusals: rejected and dropped connections are counted by destination.
	CountRefusals bool
	MasqueradeBit uint8 // 0..31; the mark is 1 << bit
	// LocalhostNodePorts: 127.0.0.1 is among NodePortAddrs and route_localnet must be 1.
	LocalhostNodePorts bool
	// ListenLocalhost: NodePorts are requested on ::1 too, where only a program can answer.
	ListenLocalhost bool
	Links           []Link // devices that are up, by name
	// Unaccelerated are addresses whose connections are never accelerated: sorted, masked, none inside another.
	Unaccelerated []netip.Prefix
}

// LocalMode is kube-proxy's detectLocalMode.
type LocalMode uint8

// The modes. DetectNone applies if no cluster CIDR is known: no packet counts as pod
// traffic, and none is masqueraded for not being pod traffic (kube-proxy's NoOp).
const (
	DetectNone LocalMode = iota
	DetectCIDR
	DetectBridgeInterface
	DetectInterfaceNamePrefix
)

// LocalDetector reports whether a packet comes from a pod of this cluster
// (DetectCIDR) or node (the interface modes).
type LocalDetector struct {
	Mode      LocalMode
	CIDRs     []netip.Prefix // DetectCIDR: sorted, masked, none inside another
	Interface string         // DetectBridgeInterface: name; DetectInterfaceNamePrefix: prefix
}
