// Package demo shows a newcomer, in under half a minute, that Services work: it builds a lab, runs the agent on examples/, makes real
// requests, takes an endpoint away while clients ask, flushes the rules, kills the agent, and prints what happened. Each sentence it prints
// with a tick is a claim that was checked; Run fails if any did not hold. `fairlead-lab demo` calls it, from one goroutine.
package demo
