// Package control is the socket by which programs on this machine talk to the
// agent, and the lock that keeps a second agent out. It owns the abstract Unix
// socket @fairlead: abstract names belong to a network namespace, as rules do, and
// the kernel releases the name when the agent dies, whatever the cause.
//
// app takes the socket before it opens anything else. Requests are HTTP,
// from root or the agent's own user only (Trusted). They are GET, or POST if they change
// the agent, and are answered on goroutines of the server.
package control
