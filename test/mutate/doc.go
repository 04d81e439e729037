// Command mutate measures which defects the package tests detect. A mutant is one small
// change of the source: another comparison operator, a deleted statement, another
// variable of the same type. A mutant is killed if the tests fail, or exceed their time
// limit, with it; a mutant that survives shows a missing test.
//
//	make mutate PKG=policy,delta SAMPLE=100
//
// # Model
//
// One test binary per package holds all mutants. The environment variable FAIRLEAD_MUTANT
// selects one by its number; 0 selects the unchanged program. The working tree is not
// changed: the files with the mutants are an overlay of `go test -c`.
//
// For the statement
//
//	if n < limit { b.local-- }
//
// the overlay holds (numbers and line breaks simplified)
//
//	if (func() bool {
//		if mutantIs(1) { return n <= limit }
//		if mutantIs(2) { return n > limit }
//		return mutantPick(3, n, m) < limit
//	}()) != mutantIs(4) {
//		if mutantIs(5) { } else { if mutantIs(6) { b.remote-- } else { b.local-- } }
//	}
//
// At most one mutant is chosen per run. The text of an alternative is therefore always
// the original source, and the size of the overlay stays linear in that of the source.
//
// The type checker selects the alternatives (another variable or field of an identical
// type), but some mutants do not compile, for example where Go requires a constant. The
// compiler's errors name their lines; the mutants of these lines are removed and the
// build is repeated.
//
// # Files
//
// operators.go and wrong.go find mutants; overlay.go writes the source that holds them;
// packages.go loads a package; run.go builds and runs its tests in a sandbox; main.go
// draws the sample and prints the results. docs/mutation.md lists equivalent mutants:
// those that change nothing a test could observe. They are counted apart.
package main
