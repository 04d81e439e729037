// Command mutate asks what the tests would notice: it changes one condition,
// boundary, returned boolean or statement at a time, runs the tests of the package,
// and prints what they let through. The tree is not touched: the mutants are an
// overlay of `go test`. Most are built into one binary, which is told which of them
// to be; a sum or difference that is turned around needs a build of its own.
//
//	make mutate PKG=policy SAMPLE=100
//
// docs/mutation.md lists the mutants that change nothing a test could see, and why;
// they are counted apart.
package main
