// Command acceleration measures what KEP-4963's fast path costs and saves. It runs inside
// an emulated machine whose clock counts instructions (test/vm, -icount), so that it
// times work and not the load of the host. run.sh starts it.
//
// In the guest it creates a client, a node and a server as namespaces, runs the real
// agent on the node, and sends the same bytes with each variant in turn. The traffic
// comes from copies of this program that only make plain system calls.
package main
