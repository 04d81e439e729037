// Command mutate asks what the tests would notice: it changes one condition,
// boundary, returned boolean or statement at a time, runs the tests of the package,
// and prints what they let through. The tree is not touched: each mutant is an
// overlay of `go test`.
//
//	make mutate PKG=policy SAMPLE=100
//
// docs/mutation.md lists the mutants that change nothing a test could see, and why;
// they are counted apart.
package main
