// Package takeover finds and removes stale rules in this network namespace: those of
// the agent's other modes, of the other iptables backend, and of any kube-proxy. Rules
// of two proxies next to each other cause no visible error: of two hooks of one priority
// the one registered later wins, and stale rules continue to send new connections to
// endpoints that are gone (kubernetes#75890 and similar issues).
//
// app calls Run as one task of the agent, and Find and Remove for clean-up. Nothing
// is removed before the agent's own rules are in the kernel: Run waits for that. The NAT
// state of open connections is in conntrack, not in rules, so they are kept.
package takeover
