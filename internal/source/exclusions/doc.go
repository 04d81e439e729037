// Package exclusions is the source of the addresses whose connections are never
// accelerated. It watches a file that another program writes, such as a policy
// engine.
//
// It owns what was read last. app starts Run in a goroutine of its own. Events leave
// through the sink.
package exclusions
