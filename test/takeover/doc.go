// Package takeover tests, with real packets, how an agent handles the rules of other programs in its network namespace: those of its other modes, of
// the other iptables backend, and of kube-proxy. test/cluster has the same sequence of modes with a real kube-proxy.
//
// It also contains tests that apply to every mode and concern no Service: that no other host reaches a program that listens on 127.0.0.1 only; and
// clusters with faults that only a real kernel shows, each with the command that names the cause.
package takeover
