// Package cluster tests the built agent from outside: a real kube-apiserver tells it what to do, and real packets tell
// whether it did. The agent is a program (FAIRLEAD_BIN); SUBJECT=kube-proxy runs upstream kube-proxy instead, which
// shows that the tests ask for nothing that a Service proxy cannot do. Everything happens in the namespaces of one
// netlab.Lab: the agent in node-a, the control plane in client2.
package cluster
