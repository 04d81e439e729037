// Package mailbox is the box between the sources and the engine: it coalesces
// events by key, so that a slow consumer finds one event an object, however
// often the object changed meanwhile.
//
// It owns the undelivered events. Any goroutine may Put, and Put never waits
// for the consumer; one goroutine, the engine, waits on Bell and calls Drain.
// It is bounded by the number of live keys and needs no other limit.
package mailbox
