// Package conntrack lists and deletes entries of the kernel's connection
// tracking table over netlink (ctnetlink).
//
// It has its own encoder because a dump must be filtered inside the kernel by
// parts of the tuples (CTA_FILTER, Linux 5.8) and read as a stream:
// vishvananda/netlink can do neither, and holding every flow of a big table in
// memory has cost kube-proxy 12 GB (#129982). An older kernel ignores the
// filter, so this package checks every flow again.
//
// A Conn works in the network namespace in which it was opened, whichever thread
// uses it, and must be used by one goroutine at a time. The conntrack cleaner has one, and
// the readers of metrics in package app have others.
package conntrack
