// Package node is the source of what the machine itself says: the addresses that
// its links carry, as model.Event{Host}.
//
// It owns the last list of addresses. app starts Run in a goroutine of its own;
// events leave through the sink.
package node
