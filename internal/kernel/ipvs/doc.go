// Package ipvs is the seam to IPVS in one network namespace: virtual and real servers, over generic
// netlink and, to read all of IPv4, the options of a socket, and the device kube-ipvs0 that carries the addresses of Services. It also finds and removes what
// kube-proxy's ipvs mode leaves: that device and its ipsets.
//
// The data plane ipvs calls it, and takeover.
package ipvs
