// Package link is the kernel client for rtnetlink: the addresses of the links of this
// network namespace, and notifications of their changes.
//
// A Conn belongs to the namespace of the thread that opened it, whichever thread
// uses it later. The package node calls it from its one goroutine; Changed may be read
// concurrently with Addrs.
package link
