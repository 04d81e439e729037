// Package exclusions is the source of the addresses whose connections are never
// accelerated: a file that somebody else writes, such as a policy engine, watched.
//
// It owns what was read last. app starts Run in a goroutine of its own; events leave
// through the sink.
package exclusions
