// Package kit runs the scenarios in test/scenarios against a subject: an agent that turns manifests into kernel rules. A scenario is data,
// not Go: manifests, steps, and after each step the packets that are expected. The kit reads it, expands it into one variant per family
// and protocol, builds a lab, and asks real questions through a real kernel.
//
// It is called by `fairlead-lab conformance`, by its own tests and by test/cluster, which brings upstream kube-proxy as a second subject.
// Expectations after one step are asked at the same time, each in a goroutine of its own, and joined before the next step.
//
// test/scenarios/README.md describes the file format.
package kit
