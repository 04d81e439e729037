// Command userspace compares programs that carry TCP connections in user space: each
// does the same work in turn, in several rounds, against one pair of endpoints. run.sh
// lists the programs.
package main
