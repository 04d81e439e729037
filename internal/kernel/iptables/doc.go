// Package iptables is the kernel client for iptables: it runs iptables-restore,
// iptables-save and iptables of one backend (legacy or nf_tables) and reads cheaply
// whether another program wrote since the last sync (Stamp). It handles tables, chains and
// lines of text; it has no notion of a Service.
//
// Only the programs write rules: their binary form is private to each
// extension of iptables. Rules are read by the programs, or from the kernel directly
// (Read) where the binary form is known. Detect finds out which backend the host
// uses and how its programs are named.
//
// A Conn belongs to the namespace in which it was opened. Save, SaveAll and Read may run
// concurrently with every other method. Watch runs in its own goroutine. The other methods
// must be called from one goroutine, the engine's.
package iptables
