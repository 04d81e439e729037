// Package netlab builds a small cluster out of network namespaces: one outside network with two clients and two nodes, and pods behind the
// nodes. Pods and nodes run echo servers (TCP, UDP, SCTP) that say who they are and whom they saw, so that a test can ask "which backend
// answered, and was my address kept" with real packets through the real kernel.
//
// A Lab has no route outside: everything it owns lives in namespaces of its own, named fl<pid>-<n>-<host>, and goes with Close. Labs of
// processes that died are swept by the next New. It is called by the scenario kit, the demo, the end-to-end tests and the benchmarks.
// Sockets are created on a thread that is for a moment inside the namespace; after that any goroutine may use them, since a socket stays
// in the namespace it was created in.
//
//	                     wire 172.18.0.1 (bridge; forwards nothing)
//	     ┌──────────────┬──────────────┬──────────────┐
//	client .9     client2 .10      node-a .2       node-b .3
//	(default via node-a)          ┌───┼───┐       ┌───┼───┐
//	                           pod-a1 a2 a3    pod-b1 b2 b3
//	                           10.244.1.11…    10.244.2.11…
package netlab
