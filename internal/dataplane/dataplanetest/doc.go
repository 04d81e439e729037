// Package dataplanetest is the suite that every data plane must pass: what the
// engine relies on, tried through the same diff (package delta) that the engine
// uses. It belongs to tests only.
//
// A driver's test calls Run with a Factory that makes a Subject on a kernel of
// its own, real or modelled.
package dataplanetest
