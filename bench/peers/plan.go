package main

import (
	"fmt"
	"net/netip"
)

// The address plan. It bounds the sizes.
const (
	serviceCIDR = "10.64.0.0/12"
	clusterCIDR = "10.128.0.0/9"
	podCIDR     = "10.128.0.0/10" // the addresses for which the server host answers
	nodePorts   = "30000-39999"

	maxServices  = 60000
	maxEndpoints = 4<<20 - 1<<16 // the pod CIDR without its first /16

	servicePort = 80
	acceptPort  = 18080 // accepts and closes
	namePort    = 18081 // returns the address on which it was reached
	nodeName    = "node0"
	canaryPort  = 81
)

var (
	apiAddr  = netip.MustParseAddr("192.168.50.1")
	canaryIP = netip.MustParseAddr("10.64.8.1")
	// canaryPods are the two endpoints between which the canary Service moves.
	canaryPods = [2]netip.Addr{netip.MustParseAddr("10.128.0.10"), netip.MustParseAddr("10.128.0.11")}
)

func serviceName(i int) string { return fmt.Sprintf("svc-%d", i) }

func serviceIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(64 + (i/250+16)>>8), byte(i/250 + 16), byte(1 + i%250)})
}

// endpointIP returns the address of endpoint j of Service i, if each Service has e of
// them.
func endpointIP(i, e, j int) netip.Addr {
	k := 1<<16 + i*e + j
	return netip.AddrFrom4([4]byte{10, byte(128 + k>>16), byte(k >> 8), byte(k)})
}

// isNodePort reports whether a Service has a node port too: every tenth has one.
func isNodePort(i int) bool  { return i%10 == 0 }
func nodePort(i int) uint16  { return uint16(30000 + i/10) }
func lastNodePort(n int) int { return (n - 1) / 10 * 10 } // the number of the Service
