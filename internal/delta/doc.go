// Package delta is the one diff: it keeps what is wanted, what is there, and
// which keys differ, as three views of one table.
//
// "There" moves only by Commit (the kernel said yes) and ReplaceActual (we read
// it). Wants come from owners (a Service, or the base); a key wanted by several
// owners is counted, so that removing one owner cannot remove another's object.
// Partial sync, full sync, restart, retry and drift repair all end in Pending.
//
// A Tracker belongs to one goroutine, the engine's. It does no I/O and reads no
// clock.
package delta
