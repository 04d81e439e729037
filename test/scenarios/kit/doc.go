// Package kit runs the scenarios in test/scenarios against a subject: an agent that turns manifests into kernel rules. A scenario is data, not Go:
// manifests, steps, and after each step the expected results of packets. The kit reads it, expands it into one variant per family and protocol,
// builds a lab, and sends real requests through a real kernel.
//
// Callers are `fairlead-lab conformance`, the tests of the kit, and test/cluster, which adds upstream kube-proxy as a second subject. The
// expectations after one step are checked concurrently, each in its own goroutine, and all finish before the next step.
//
// test/scenarios/README.md describes the file format.
package kit
