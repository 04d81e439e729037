// Package conntrack lists and deletes entries of the kernel's connection
// tracking table over netlink (ctnetlink).
//
// It has its own encoder because a dump must be filtered inside the kernel by
// parts of the tuples (CTA_FILTER, Linux 5.8) and read as a stream:
// vishvananda/netlink can do neither, and holding every flow of a big table in
// memory has cost kube-proxy 12 GB (#129982). An older kernel ignores the
// filter, so every flow is checked here once more.
//
// A Conn works in the network namespace in which it was opened, whatever thread
// uses it, and belongs to one goroutine: the conntrack cleaner's.
package conntrack
