// Package testcluster starts a real etcd and a real kube-apiserver in a network namespace, with certificates of its own
// authority and RBAC on, so that what a test sees is what a cluster does. It owns those two processes and a scratch
// folder. One goroutine at a time may start, kill or stop; reading is free.
package testcluster
