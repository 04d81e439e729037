// Package rootless is `make demo-rootless`: userspace mode on a machine as it is, as an
// ordinary user. It owns the processes that it starts, the agents and the backends, and
// ends them. It uses loopback addresses only.
package rootless
