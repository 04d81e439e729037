// Package link is the seam to rtnetlink: the addresses that the links of this
// network namespace carry, and word of their changes.
//
// A Conn belongs to the namespace of the thread that opened it, whichever thread
// uses it later. node calls it from its one goroutine; Changed may be read while
// Addrs runs.
package link
