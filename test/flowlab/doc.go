// Package flowlab is a small network for tests of connections on the kernel's fast path:
// the test's own namespace is a node that forwards between a client and a machine with
// two endpoints in each family.
package flowlab
