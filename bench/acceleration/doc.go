// Command acceleration measures what KEP-4963's fast path costs and saves: it runs inside
// an emulated machine whose clock counts instructions (test/vm, -icount), so that what it
// times is work and not the load of the host. run.sh starts it.
//
// In the guest it makes a client, a node and a server as namespaces, runs the real agent
// on the node, and lets the same bytes go by each variant in turn. The traffic comes from
// copies of this program that do plain system calls.
package main
