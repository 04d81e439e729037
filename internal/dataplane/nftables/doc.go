// Package nftables is the default data plane: Frontends as elements of a few
// maps in the agent's own tables `ip fairlead` and `ip6 fairlead` (layout L2 of
// docs/design/nftables.md), written over netlink, one transaction per Apply.
//
// No Service has a chain: services and nodeports map a Frontend to a chain that
// is shared by all Frontends of one size class, and that chain draws a slot from
// the map of endpoints. So a Service that scales inside its class changes map
// elements only, whose cost does not depend on how many Services there are.
//
// The package owns everything in the two tables, which it identifies by a mark in their
// user data. The methods of a Driver are called from the engine's goroutine; Watch,
// Compare and Survey may run concurrently. The Driver never runs nft, and never writes
// objects that nft 1.0.6 cannot list.
package nftables
