// Package takeover tests, with real packets, what an agent does about the rules that others left in its network namespace: those of its
// other modes, of the other iptables backend, and of kube-proxy. test/cluster has the same walk with a real kube-proxy.
//
// It also holds what must be true of every mode and is no Service: that nobody outside reaches what listens on 127.0.0.1 only;
// and clusters that are broken in ways that only a real kernel shows, each with the command that names the cause.
package takeover
