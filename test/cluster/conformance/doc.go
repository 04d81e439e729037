// Command conformance runs the scenario kit of test/scenarios against upstream kube-proxy, with a real API server in each lab: every
// manifest of a scenario is created as an object there. `make conformance SUBJECT=kube-proxy` calls it. It needs root and the
// programs that test/cluster/build.sh builds.
package main
