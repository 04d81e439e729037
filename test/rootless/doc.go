// Package rootless implements `make demo-rootless`: userspace mode on an unmodified
// machine, as an ordinary user. It owns the processes that it starts, the agents and the
// backends, and stops them. It uses loopback addresses only.
package rootless
