// Command modes measures what a new connection costs through each proxy mode, by the number of Services: the table of an often-read guide
// (docs/experiments/modes). It runs inside a test kernel that counts instructions for a clock (run.sh boots it), so a time is a number of
// instructions, and the load of the machine does not matter.
//
// Each trial has namespaces of its own: a client pod, a node, and a server that answers for every endpoint. The subject, Fairlead or
// kube-proxy, gets its objects from package kubeapi. It stands still (SIGSTOP) while connections are measured, so that the rules alone are.
package main
