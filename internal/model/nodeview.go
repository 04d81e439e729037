package model

import "net/netip"

// NodeView is what a data plane must know of this node, apart from Frontends:
// the second, small half of policy's output.
type NodeView struct {
	NodePortAddrs []netip.Addr   // addresses on which NodePorts answer, sorted, both families; empty = none
	NodePortsBy   string         // why on these, for an operator
	HealthAddrs   []netip.Addr   // where health check node ports listen, sorted; 0.0.0.0 and :: are every address of their family; empty = nowhere
	NodeAddrs     []netip.Addr   // all addresses of this node, sorted
	Local         LocalDetector  // tells pod traffic from other traffic
	ServiceCIDRs  []netip.Prefix // new connections to addresses here that are no Service's are dropped; empty = unknown
	MasqueradeAll bool
	// CountRefusals: what is refused and what is dropped is counted by what it was sent to.
	CountRefusals bool
	MasqueradeBit uint8 // 0..31; the mark is 1 << bit
	// LocalhostNodePorts: 127.0.0.1 is among NodePortAddrs and route_localnet must be 1.
	LocalhostNodePorts bool
	// ListenLocalhost: NodePorts are wanted on ::1 too, where only a program can answer.
	ListenLocalhost bool
	Links           []Link // devices that are up, by name
	// Unaccelerated are addresses whose connections are never accelerated: sorted, masked, none inside another.
	Unaccelerated []netip.Prefix
}

// LocalMode is kube-proxy's detectLocalMode.
type LocalMode uint8

// The modes. DetectNone holds when no cluster CIDR is known: nothing counts as
// a pod, and nothing is masqueraded for not being one (kube-proxy's NoOp).
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
