// Package archtest holds tests only: they enforce the import table and the
// rules of CONTRIBUTING.md (sizes, names, comments) on the source itself, so that a review
// need not.
//
// The table is in table_test.go, everything that is allowed against a rule is in
// allowances_test.go, each with its reason.
package archtest
