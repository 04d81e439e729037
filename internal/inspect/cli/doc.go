// Package cli holds the commands that query a running agent: status, explain, trace
// and audit. They use only the control socket, so they work in an image that
// contains nothing but the agent. Each is a process of its own, with one goroutine.
package cli
