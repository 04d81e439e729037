// Package sysctl is the kernel client for /proc/sys of the calling thread's network
// namespace, and for the few settings that a Service proxy makes
// there: route_localnet, conntrack's limits and timeouts, nf_conntrack_acct, and those of
// IPVS.
//
// The package app calls it: at the start, for route_localnet after the first commit, and
// with acceleration at intervals (CountFlows). A setting that cannot be made is
// reported and never fatal: in a user namespace, or where /proc/sys is mounted
// read-only, Services work without it (kube-proxy exits there, kubernetes#92863).
package sysctl
