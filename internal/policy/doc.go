// Package policy is the only place that decides what a Service means on this
// node: traffic policies, topology hints, terminating fallback, affinity, source
// ranges, and the verdict when no endpoint is left. It turns inputs into
// Frontends and a NodeView.
//
// It is pure: no I/O, no clock, no goroutine, no Kubernetes types. Section
// numbers in comments are those of docs/design/contract.md.
package policy
