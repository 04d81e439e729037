// Package conntrack ends flows that the kernel still carries to where they should
// not go any more: UDP and SCTP flows to an endpoint that has gone, to a Service
// that has gone, to a NodePort address that has gone, or to nowhere because they
// began before there was an endpoint (#48370) or before the NodePort address was
// served. A Cleaner is told what was committed and works in its own goroutine,
// so that a big table never holds up a sync.
//
// What stays is what kube-proxy lets stay: a flow to any endpoint of the Service
// that still serves, whatever traffic policy, topology or termination say to new
// connections. There is no wipe at start: the one sweep compares (#122740).
package conntrack
