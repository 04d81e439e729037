// Package conntrack deletes stale flows, which the kernel still sends to a destination
// that is not desired any more: UDP and SCTP flows to a removed endpoint, to a removed
// Service, to a removed NodePort address, or to no endpoint because they began before
// there was one (#48370) or before the NodePort address was served. A Cleaner receives
// what was committed and works in its own goroutine, so that a big table never holds up
// a sync.
//
// What stays is what kube-proxy lets stay: a flow to any endpoint of the Service
// that still serves, whatever traffic policy, topology or termination say to new
// connections. There is no wipe at start: the one sweep compares (#122740).
package conntrack
