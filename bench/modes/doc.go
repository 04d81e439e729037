// Command modes measures the cost of a new connection in each proxy mode, by the number of Services: the table of an often-read guide
// (docs/experiments/modes). It runs inside a test kernel whose clock counts instructions (run.sh boots it), so a time is a number of
// instructions, and the load of the machine does not matter.
//
// Each trial has namespaces of its own: a client pod, a node, and a server that answers for every endpoint. The subject, Fairlead or
// kube-proxy, gets its objects from package kubeapi. It is stopped (SIGSTOP) while connections are measured, so that only the rules are
// measured.
package main
