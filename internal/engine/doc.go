// Package engine is the loop: it drains the mailbox, folds events into state,
// lets policy decide the dirty Services, lets the driver render them, takes the
// difference from delta and applies it, and tells everybody what was committed.
//
// One goroutine, Run's, owns state, claims, tracker and driver: there are no
// locks. Nothing else writes the kernel. Partial sync, full sync, restart,
// retry, audit and repair are one path; they differ only in whether Load
// refreshed what is there before the difference was taken.
package engine
