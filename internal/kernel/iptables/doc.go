// Package iptables is the seam to iptables: it runs iptables-restore,
// iptables-save and iptables of one backend (legacy or nf_tables) and asks the
// kernel cheaply whether anybody wrote since (Stamp). It knows tables, chains and
// lines of text, and nothing of Services.
//
// Rules are written by the programs: their binary form is private to each
// extension of iptables. They are read by the programs, or from the kernel itself
// (Read) where the forms are known. What the programs need of the host is found by
// Detect.
//
// A Conn belongs to the namespace in which it was opened. Save, SaveAll and Read may run
// beside everything else, Watch runs in its own goroutine, the other methods belong to
// one goroutine, the engine's.
package iptables
