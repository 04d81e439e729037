// Package model holds the values that every other package speaks in: the
// inputs (Service, Slice, Node, HostAddrs) as the sources deliver them, and the
// decisions (Frontend, Backend, Verdict) as policy makes them.
//
// It owns no state, starts no goroutine and imports only the standard library,
// so that policy and the data planes never see a Kubernetes type.
package model
