// Package cli has the commands that ask a running agent: status, explain, trace and
// audit. They talk to it over the control socket only, so they work in an image that
// has nothing but the agent. Each is a process of its own, with one goroutine.
package cli
