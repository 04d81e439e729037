// Package cluster tests the built agent from outside. A real kube-apiserver holds the desired state, and real packets
// show whether the agent implements it. The agent is a program (FAIRLEAD_BIN); SUBJECT=kube-proxy runs upstream
// kube-proxy instead, which shows that the tests require only what a Service proxy can do. Everything runs in the
// namespaces of one netlab.Lab: the agent in node-a, the control plane in client2.
package cluster
