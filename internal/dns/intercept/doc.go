// Package intercept redirects the queries of local pods for the cluster's DNS
// Service to this node's own server, in every kernel mode. It stops redirecting them
// as soon as that server does not answer.
//
// It owns the nftables tables "ip fairlead-dns" and "ip6 fairlead-dns", the
// sockets that mark the process as alive, and nothing else. Run is one goroutine. It writes
// to the kernel at start, at the end and when the Service's address changes, never
// in between, so that no data plane sees its generation change.
//
// Queries are readdressed before connection tracking, packet by packet: there is
// no state, so a client that keeps one socket for ever changes servers with its
// next packet. Two things must hold for a packet to be taken:
//
//   - a socket of this process is bound to the Service's address and port 53
//     (IP_TRANSPARENT; it never receives anything). The kernel closes it with the
//     process, however that ends;
//   - the Service's address is in the set "alive". An element lives for three
//     seconds and is renewed by packets: the server's own answers to the question
//     that Run asks it each second. A server that hangs renews nothing.
//
// What is not taken goes its usual way to the cluster's DNS.
package intercept
