// Package netlink is the one way in which the kernel seams speak netlink in bulk: a Conn sends a question, reads its
// answer whatever else lies in the socket, and opens another socket when the old one has lost a part of an answer or has
// failed. So a fault costs the call in which it happens and no other.
//
// It goes through raw system calls on a socket of github.com/mdlayher/netlink, which copies each message of a question and
// allocates for each one received: a batch of 500 000 elements cannot afford that.
package netlink
