// Package relay carries connections: it listens on a socket, chooses an endpoint by
// the Frontend that it was given, and moves the bytes. Few bytes of TCP are copied;
// many go through the kernel's pipes (splice) and never enter this process's memory.
// Each UDP client has a socket of its own towards its endpoint.
//
// A Relay holds what all listeners share: the bounds on descriptors, the pipes and
// the buffers. A Target is one Frontend with what its clients have taught (session
// affinity) and its connections; a Listener is one socket of a Target. Their methods
// may be called from any goroutine and wait for nobody: userspace mode calls them
// from the engine's.
//
// TCP is carried by a few workers, one for each processor: a goroutine with an epoll
// descriptor of its own. A connection belongs to the worker that has accepted it, which
// alone touches it: it has no lock, no goroutine, no timer, and while nothing moves no
// buffer. Each UDP listener and each UDP client has a goroutine.
package relay
