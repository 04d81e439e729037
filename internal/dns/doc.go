// Package dns is the node-local DNS server: authoritative for the cluster
// domain from the agent's own inputs, a forwarder for everything else.
//
// It exists because of negative caching (docs/headless.md): it never lets a
// client keep a "no such name" of the cluster domain, and it may hold ("park")
// a query for a headless name that is about to be published.
//
// Store holds the names. One goroutine feeds it model events; queries read it
// from any goroutine, each service as one immutable view. Server owns the
// sockets, the parked queries and the forwarder; app starts Server.Run and
// joins it. The package programs nothing into the kernel: package intercept
// below it brings the packets here.
package dns
