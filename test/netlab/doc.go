// Package netlab builds a small cluster out of network namespaces: one outside network with two clients and two nodes, and pods behind the nodes.
// Pods and nodes run echo servers (TCP, UDP, SCTP) that return their own names and the client's address as they saw it. So a test can check which
// backend answered, and whether the source address was preserved, with real packets through the real kernel.
//
// A Lab has no route outside: all its resources are in its own namespaces, named fl<pid>-<n>-<host>, and Close removes them. The next New removes the
// labs of processes that died. Callers are the scenario kit, the demo, the end-to-end tests and the benchmarks. Sockets are created on a thread that
// briefly enters the namespace; after that any goroutine may use them, since a socket stays in the namespace in which it was created.
//
//	                     wire 172.18.0.1 (bridge; forwards nothing)
//	     ┌──────────────┬──────────────┬──────────────┐
//	client .9     client2 .10      node-a .2       node-b .3
//	(default via node-a)          ┌───┼───┐       ┌───┼───┐
//	                           pod-a1 a2 a3    pod-b1 b2 b3
//	                           10.244.1.11…    10.244.2.11…
package netlab
