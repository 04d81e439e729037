// Package delta computes the difference between the desired and the actual state: it
// keeps the desired state, the actual state and the pending keys as three views of one
// table (tracker.go, actual.go, pending.go). Tracker has a worked example.
//
// Only Commit (the kernel applied a change), CommitAnew (a family was rebuilt) and
// ReplaceActual (the kernel was read) update the actual state. The desired state comes
// from owners (a Service, or the base). A key with several owners is counted, so that
// removing one owner cannot remove another owner's object. Partial sync, full sync,
// restart, retry and drift repair all end in Pending. Above the table are layers, one
// file each: owners.go, linger.go (unused keys stay for their linger time), hold.go
// (quarantine), unseen.go (objects of an earlier run), pool.go (values made of slots).
//
// A Tracker belongs to one goroutine, the engine's. It does no I/O and reads no
// clock.
package delta
