// Package testcluster starts a real etcd and a real kube-apiserver in a network namespace, with certificates of its own
// authority and with RBAC enabled, so that a test sees the behaviour of a cluster. It owns those two processes and a
// scratch folder. Only one goroutine at a time may start, kill or stop; reads may be concurrent.
package testcluster
