// Package engine is the control loop: it drains the mailbox, folds events into state,
// lets policy decide the dirty Services, lets the driver render them, takes the
// pending changes from delta and applies them, and notifies the observers of the commit.
//
// One goroutine, Run's, owns state, claims, tracker and driver: there are no
// locks. No other goroutine writes the rules of the data plane. Partial sync, full sync, restart,
// retry, audit and repair are one path; they differ only in whether Load
// refreshed the actual state before the difference was computed.
package engine
