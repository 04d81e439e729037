// Package inspect builds the answers of `fairlead status`, `explain`, `trace` and
// `audit`: the state that the agent assumes, what policy decided and why, and whether
// the actual state of the kernel is the desired one. It makes no decisions, it reads
// them.
//
// The parts that need the engine's state are built on the engine's goroutine, from one
// Service, and only on request (engine.Inspect). All other parts are plain values. The
// requester renders them: the commands, or the page.
package inspect
