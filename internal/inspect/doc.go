// Package inspect makes the answers of `fairlead status`, `explain`, `trace` and
// `audit`: what the agent believes, what policy decided and why, and whether the kernel
// agrees. It decides nothing: it reads decisions.
//
// What needs the engine's state is built on the engine's goroutine, from one Service,
// and only when somebody asks (engine.Inspect). All else is plain values that are
// rendered by whoever asked: the commands, or the page.
package inspect
