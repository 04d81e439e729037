// Package nftsave reads iptables' tables in nf_tables over netlink and prints their rules
// exactly as iptables-nft-save does, without running it: the program takes
// seconds for a hundred thousand rules, because it dumps whole tables and keeps them in memory.
//
// The kernel restarts each part of a dump at the table's first rule, so the cost of a
// whole table's dump is quadratic in its rules. A dump per chain avoids that. The rules of one
// chain are a consistent snapshot; two chains may be of two states if another program writes concurrently.
//
// The package decodes what iptables-nft 1.8.9 writes for the rules of package xt (rule.go).
// Anything else makes the read fail with ErrUnknown, and the caller must run the program.
//
// A Reader is safe for concurrent use; it serializes the reads.
package nftsave
