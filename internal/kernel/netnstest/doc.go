// Package netnstest provides tests with separate network namespaces and owns their
// creation and deletion. Tests of anything that uses the kernel call it, on
// their own goroutine. It never runs anything in the namespace in which the
// test process was started: where no namespace can be created, the test fails.
package netnstest
