// Package link is the kernel client for rtnetlink: the addresses of the links of this
// network namespace, and notifications of their changes. For userspace mode it also owns
// the routes that make addresses of Services local (Locals) and the routing rules that
// deliver ports and replies to the agent (Ports, Returns).
//
// A Conn belongs to the namespace of the thread that opened it, whichever thread
// uses it later. The package node calls it from its one goroutine; Changed may be read
// concurrently with Addrs.
package link
