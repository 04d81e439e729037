// Package mailbox is the event queue between the sources and the engine. It
// coalesces events by key, so that a slow consumer handles one event per object,
// however often the object was updated since the last Drain.
//
// A Mailbox owns the undelivered events. Any goroutine may Put, and Put never waits
// for the consumer. One goroutine, the engine's, waits on Bell and calls Drain.
// The queue is bounded by the number of live keys and needs no other limit.
package mailbox
