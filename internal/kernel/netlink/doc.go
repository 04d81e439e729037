// Package netlink is the transport of the kernel clients that use netlink in bulk: a Conn sends a request, reads its
// answer regardless of other messages in the queue, and replaces the socket when a part of an answer was lost or the socket has
// failed. So a fault affects only the call in which it occurs.
//
// It makes raw system calls on a socket of github.com/mdlayher/netlink. That library's own methods copy each message of a request
// and allocate for each one received, which is too expensive for a batch of 500 000 elements.
package netlink
