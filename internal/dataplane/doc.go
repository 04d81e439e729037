// Package dataplane is the contract between the engine and the data planes:
// Driver, Object, Op, Batch and the error classes. It makes no decisions and
// does no I/O.
//
// A driver renders Frontends as Objects (pure), reports the Objects that the
// kernel holds (Load) and applies operations (Apply). Package delta computes the
// operations as the difference between the desired and the actual state. Partial
// sync, full sync, restart, retry and drift repair differ only in the source of
// the actual state.
package dataplane
