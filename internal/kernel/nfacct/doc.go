// Package nfacct is the kernel client for the named packet counters (nfnetlink_acct),
// which an iptables rule updates by `-m nfacct --nfacct-name NAME`. A counter belongs
// to a network namespace and persists when the agent ends.
//
// A Conn works in the network namespace in which it was opened. The data plane
// creates and deletes counters on the engine's goroutine; each scrape of the metrics
// reads them on its own goroutine.
package nfacct
