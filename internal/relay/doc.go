// Package relay carries connections: it listens on a socket, chooses an endpoint by
// its Frontend, and moves the bytes. A few bytes of TCP are copied; larger
// amounts go through the kernel's pipes (splice) and never enter this process's memory.
// Each UDP client has a socket of its own towards its endpoint.
//
// A Relay holds what all listeners share: the bounds on descriptors, the pipes and
// the buffers. A Target is one Frontend with its session affinity state and its
// connections; a Listener is one socket of a Target. Their methods may be called from
// any goroutine and do not block: userspace mode calls them from the engine's.
//
// TCP is carried by a few workers, one for each processor: a goroutine with an epoll
// descriptor of its own. A connection is owned by the worker that has accepted it, and only
// that worker accesses it: it has no lock, no goroutine, no timer, and while no bytes move no
// buffer. Each UDP listener and each UDP client has a goroutine.
package relay
