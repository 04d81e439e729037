// Package dataplanetest is the conformance suite that every data plane must pass.
// It tests the behaviour that the engine relies on, through the same diff (package
// delta) that the engine uses. Only tests import it.
//
// A driver's test calls Run with a Factory that returns a Subject on a kernel of
// its own, real or simulated.
package dataplanetest
