// Package nfacct is the seam to the kernel's named packet counters (nfnetlink_acct),
// which an iptables rule feeds by `-m nfacct --nfacct-name NAME`. A counter belongs
// to a network namespace and stays when the agent ends.
//
// A Conn works in the network namespace in which it was opened. The data plane
// makes and deletes counters on the engine's goroutine; each scrape of the metrics
// reads them on its own.
package nfacct
