package netlab

import (
	"fmt"
	"net/netip"
)

// The address plan. It is fixed so that a scenario, a log line and a packet dump can be read without an explanation. IPv6 addresses repeat the
// numbers of IPv4 (10.244.1.11 is fd00:10:244:1::11).
const (
	// ClusterCIDR4 and ClusterCIDR6 contain every pod.
	ClusterCIDR4 = "10.244.0.0/16"
	ClusterCIDR6 = "fd00:10:244::/48"
	// ServiceCIDR4 and ServiceCIDR6 contain the ClusterIPs.
	ServiceCIDR4 = "10.96.0.0/16"
	ServiceCIDR6 = "fd00:10:96::/112"
)

// Ports on which every pod and every node answers, in all protocols. CanaryPorts are reserved for the scenario kit's own barrier.
var (
	echoPorts   = []uint16{8080, 8081, 9090}
	canaryPorts = []uint16{7001, 7002}
)

// Addrs holds one host's address in each family.
type Addrs struct{ V4, V6 netip.Addr }

// Of returns the address of the same family as ip.
func (a Addrs) Of(ip netip.Addr) netip.Addr {
	if ip.Is4() {
		return a.V4
	}
	return a.V6
}

func (a Addrs) each() []netip.Addr { return []netip.Addr{a.V4, a.V6} }

func wireAddrs(last int) Addrs {
	return Addrs{netip.MustParseAddr(fmt.Sprintf("172.18.0.%d", last)), netip.MustParseAddr(fmt.Sprintf("fd00:172:18::%d", last))}
}

func podAddrs(node, last int) Addrs {
	return Addrs{netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", node, last)), netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%d", node, last))}
}

func podPrefixes(node int) []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", node)), netip.MustParsePrefix(fmt.Sprintf("fd00:10:244:%d::/64", node))}
}

var (
	wireGateway = wireAddrs(1)
	defaultDest = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
)
