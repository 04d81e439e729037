// Package netnstest gives tests network namespaces of their own: it owns their
// making and their end. Tests of anything that touches the kernel call it, on
// their own goroutine. Nothing that it runs ever runs in the namespace that the
// test process was started in: where no namespace can be made, the test fails.
package netnstest
