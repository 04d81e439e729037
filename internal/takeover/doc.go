// Package takeover finds and removes what others left in this network namespace:
// our own other modes, the other iptables backend, and any kube-proxy. Rules of two
// proxies side by side are no error that anybody sees: of two hooks of one priority
// the one registered later wins, and stale rules go on sending new connections to
// endpoints that are gone (kubernetes#75890 and its like).
//
// app calls Run as one task of the agent, and Find and Remove for clean-up. Nothing
// is removed before our own rules are in: Run waits for that. NAT of connections
// that run is in conntrack, not in rules, so they stay.
package takeover
