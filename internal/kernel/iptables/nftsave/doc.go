// Package nftsave reads iptables' tables in nf_tables over netlink and prints their rules
// as iptables-nft-save does, letter by letter, without running it: the program takes
// seconds for a hundred thousand rules, because it dumps whole tables and keeps them.
//
// The kernel begins each part of a dump at the table's first rule, so that the dump of a
// whole table costs the square of its rules. Chain by chain it does not. What a chain
// holds is of one state; two chains may be of two, where somebody writes meanwhile.
//
// What iptables-nft 1.8.9 writes for the rules of package xt is known here (rule.go).
// Anything else makes the reading fail with ErrUnknown, and whoever reads asks the program.
//
// A Reader may be used by any goroutine; two readings take turns.
package nftsave
