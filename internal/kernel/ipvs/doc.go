// Package ipvs is the kernel client for IPVS in one network namespace: virtual and real servers, over generic
// netlink and, for reading all of IPv4, socket options, and the device kube-ipvs0 that holds the addresses of Services, with the
// routing rule and the local routes of routing table RouteTable. It also finds and removes the leftovers of kube-proxy's ipvs mode: that device and its ipsets.
//
// Its callers are the data plane ipvs and takeover.
package ipvs
