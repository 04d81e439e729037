// Package userspace is the data plane without a kernel: it listens where a Service is
// to be reached and carries the connections itself (package relay). It needs no
// privilege and writes no rule.
//
// Its objects are what the engine's diff knows of: whose addresses are whose, a route
// that makes a Service's address local (only in a network namespace of our own), a
// Frontend with its endpoints, and a socket. Where the sockets are, package
// addressplan decides. A restart begins from nothing, for sockets end with their
// process; only the routes are found again. With a handover (Hold, Begin) it begins with
// the sockets of the process before it.
//
// The engine's goroutine calls everything but Watch, which tries again, on a
// goroutine of its own, to open sockets whose port somebody else has, and the handover's
// methods, which have one too.
package userspace
