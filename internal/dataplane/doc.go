// Package dataplane is the contract between the engine and the data planes:
// Driver, Object, Op, Batch, the error classes. It decides nothing and touches
// nothing.
//
// A driver turns Frontends into Objects (pure), tells which Objects the kernel
// has (Load) and applies operations (Apply). What is to be done is found by one
// diff, in package delta; partial sync, full sync, restart, retry and repair
// differ only in where "have" came from.
package dataplane
