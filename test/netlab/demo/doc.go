// Package demo shows new users, in under half a minute, that Services work: it builds a lab, runs the agent on examples/, sends real requests,
// removes an endpoint while clients send requests, flushes the rules, kills the agent, and prints the results. Each sentence that it prints with a
// tick is a claim that it has checked; Run fails if any did not hold. `fairlead-lab demo` calls it, from one goroutine.
package demo
