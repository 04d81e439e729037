// Package userspace is the data plane that does not forward in the kernel: it listens on
// the addresses of Services and relays the connections itself (package relay). It needs no
// privilege, except for routes and routing rules (CAP_NET_ADMIN), and writes no packet
// filter rule.
//
// Its objects in the engine's diff are: the owners of addresses, a route that makes a
// Service's address local (only in a network namespace of the agent's own), the routing
// rules for a port and for the replies of an endpoint, a Frontend with its endpoints, and
// a socket (render.go). Package addressplan decides the addresses of the sockets. A
// restart begins with an empty state, because sockets end with their process; only the
// routes and the routing rules persist. With a handover (Hold, Begin) it begins with the
// sockets of the process before it.
//
// The engine's goroutine calls all methods but Watch and those of the handover, which each
// run on a goroutine of their own, and Compare and Survey, which any goroutine may
// call. Watch retries to open sockets whose port another program has.
package userspace
