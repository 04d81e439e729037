// Command sync measures what the agent's straight line costs, from Kubernetes
// objects in memory to committed kernel state: conversion, mailbox, state,
// policy, render, diff, netlink, kernel. It prints a table, and JSON lines to
// bench/results.
//
// Each size runs in a process and a network namespace of its own (`unshare -n`,
// see scripts/bench.sh); it refuses to run in the initial namespace. CPU is the
// process's user and system time (getrusage), the kernel's work on our batches
// included; deferred work of kernel threads is not.
//
// With -commands it measures a whole agent from outside instead: what `fairlead status`,
// explain and audit get from its socket, and a change beside them.
package main
