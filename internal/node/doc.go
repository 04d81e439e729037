// Package node is the source of the addresses of this machine's links, which it
// delivers as model.Event{Host}.
//
// It owns the last list of addresses. app starts Run in a goroutine of its own;
// events leave through the sink.
package node
