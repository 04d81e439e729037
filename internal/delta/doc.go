// Package delta is the one diff: it keeps what is wanted, what is there, and
// which keys differ, as three views of one table (tracker.go, actual.go, pending.go).
//
// "There" moves only by Commit (the kernel said yes), CommitAnew (it was rebuilt)
// and ReplaceActual (we read it). Wants come from owners (a Service, or the base),
// and a key wanted by several is counted, so that removing one owner cannot remove
// another's object. Partial sync, full sync, restart, retry and drift repair all end
// in Pending. Above the table are layers, a file each: owners.go, linger.go (unused
// keys stay for a while), hold.go (quarantine), pool.go (values made of slots).
//
// A Tracker belongs to one goroutine, the engine's. It does no I/O and reads no
// clock.
package delta
