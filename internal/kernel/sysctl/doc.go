// Package sysctl is the narrow seam to /proc/sys of the network namespace that
// the calling thread is in, and the few settings that a Service proxy makes
// there: route_localnet and conntrack's limits.
//
// app calls it once at start, on its own goroutine. What cannot be set is
// reported and never fatal: in a user namespace, or where /proc/sys is mounted
// read-only, Services work without it (kube-proxy ends there, kubernetes#92863).
package sysctl
