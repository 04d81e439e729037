// Package app is the only wiring: it builds the graph source → mailbox → engine
// → driver → kernel by plain constructor calls, connects the observers of
// commits (metrics, health, conntrack, log), owns signals and the order of
// shutdown. It decides nothing about traffic.
package app
