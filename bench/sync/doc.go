// Command sync measures the cost of the agent's main path, from Kubernetes objects in
// memory to committed kernel state: conversion, mailbox, state, policy, render, diff,
// netlink, kernel. It prints a table, and JSON lines to bench/results.
//
// Each size runs in a process and a network namespace of its own (`unshare -n`, see
// scripts/bench.sh); it refuses to run in the initial namespace. CPU is the process's
// user and system time (getrusage). It includes the kernel's work on the agent's
// batches, but not the deferred work of kernel threads.
//
// With -commands it measures a whole agent from outside instead: what `fairlead status`,
// explain and audit get from its socket, and a concurrent change.
package main
