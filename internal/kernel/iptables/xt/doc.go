// Package xt prints the binary matches and targets of x_tables, which nf_tables can wrap
// too, as iptables-save prints them.
//
// It supports the kinds that the data plane writes and related ones. For everything else,
// including a single unsupported revision, flag or value, it returns false:
// the caller must then run the programs. The layouts are those of the kernel's headers
// (include/uapi/linux/netfilter/xt_*.h, x_tables.h, nf_nat.h). The text is the observed
// output of iptables 1.8.9, and the tests compare it with the programs' output.
//
// All functions append to a buffer of the caller and keep no state, so they
// are safe for concurrent use.
package xt
