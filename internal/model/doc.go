// Package model defines the types that all other packages share: the inputs
// (Service, Slice, Node, HostAddrs) that the sources deliver, and the decisions
// (Frontend, Backend, Verdict) that policy returns.
//
// It owns no state, starts no goroutine and imports only the standard library,
// so that policy and the data planes do not depend on Kubernetes types.
package model
