// Package iptables is the data plane that writes kube-proxy's chains by
// iptables-restore, for both backends, legacy and nft (docs/design/iptables.md).
//
// A Service port has one chain with its endpoints, no chain per endpoint. It is
// found by a trie of chains over the destination address, so that the first
// packet costs the same at 10 000 Services as at 100, and so that adding a
// Service writes one small bucket. Chains whose content is unchanged are never
// mentioned to iptables-restore.
//
// The package owns the chains of kube-proxy's names, its own buckets, and the
// rules in the built-in chains that jump to them; it takes over what a kube-proxy
// left. A Driver belongs to the engine's goroutine, except Watch, Compare, Recall and Survey, which
// may run concurrently.
package iptables
