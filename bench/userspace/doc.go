// Command userspace measures what carries TCP connections in user space side by side:
// each does the same work in turn, in several rounds, against one pair of endpoints. See
// run.sh for who takes part.
package main
