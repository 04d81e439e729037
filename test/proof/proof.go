// Package proof reports how much a test exercised, so that the summary of a test run can count it: scenario variants, random histories, requests,
// fuzz inputs.
package proof

import "testing"

// Count reports that the test exercised n things of a kind, for example 20 "random histories". Command test/summary
// adds up the counts of each kind.
func Count(t testing.TB, n int, kind string) {
	t.Helper()
	t.Logf("proof: %d %s", n, kind)
}
