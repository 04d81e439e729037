// Package xt turns the binary matches and targets of x_tables, which nf_tables carries
// too, into the words that iptables-save prints for them.
//
// It knows the kinds that the data plane writes and those near to them, and says of
// everything else that it does not know it, also of a single revision, flag or value:
// whoever reads then asks the programs. The layouts are those of the kernel's headers
// (include/uapi/linux/netfilter/xt_*.h, x_tables.h, nf_nat.h); the words are what
// iptables 1.8.9 was seen to print, and the tests hold them against the programs.
//
// All functions append to a buffer of the caller's and keep nothing, so that any
// goroutine may call them.
package xt
