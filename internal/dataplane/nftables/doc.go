// Package nftables is the default data plane. Frontends are elements of a few
// maps in the agent's own tables `ip fairlead` and `ip6 fairlead` (layout L2 of
// docs/design/nftables.md), written over netlink, one transaction per Apply.
//
// No Service has a chain. The maps services and nodeports map a Frontend to a chain that
// all Frontends of one size class share, and that chain draws a slot from
// the map of endpoints. So a Service that scales inside its class updates map
// elements only, at a cost that does not depend on the number of Services.
//
// The package owns everything in the two tables, which it recognises by a mark
// in their user data. The methods of a Driver belong to the engine's goroutine, except Watch.
// It never runs nft, and never writes what nft 1.0.6 cannot list.
package nftables
