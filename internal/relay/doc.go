// Package relay carries connections: it listens on a socket, chooses an endpoint by
// the Frontend that it was given, and moves the bytes. TCP goes through the kernel's
// pipes (splice) and never enters this process's memory; each UDP client has a socket
// of its own towards its endpoint.
//
// A Relay holds what all listeners share: the bounds on descriptors, the pipes and
// the buffers. A Target is one Frontend with what its clients have taught (session
// affinity) and its connections; a Listener is one socket of a Target. Their methods
// may be called from any goroutine and wait for nobody: userspace mode calls them
// from the engine's. Each listener and each connection has goroutines of its own.
package relay
