// Package nftables is the default data plane: Frontends as elements of a few
// maps in the agent's own tables `ip fairlead` and `ip6 fairlead` (layout 3 of
// docs/design/nftables.md), written over netlink, one transaction per Apply.
//
// No Service has a chain, except for session affinity: services and nodeports map a
// Frontend to a chain that is shared by all Frontends of one size class, and that
// chain draws a slot from the map of endpoints. So a Service that scales inside its
// class changes map elements only, whose cost does not depend on how many Services
// there are.
//
// Example (docs/design/nftables-small.nft is the complete listing): node 192.0.2.10,
// pods 10.244.0.0/16, Service shop/web with ClusterIP 10.96.0.10:80, node port 30080
// and the endpoints 10.244.1.5:8080 (on this node), 10.244.2.7:8080 and
// 10.244.3.9:8080. Three slots are class 4, so the objects are
//
//	map services     10.96.0.10 . tcp . 80     : goto lb-a-4
//	map nodeports    tcp . 30080               : goto ext-np-4
//	map eps-a        10.96.0.10 . tcp . 80 . 0 : 10.244.1.5 . 8080   and slots 1 and 2
//	map np-eps       tcp . 30080 . 0           : 10.244.1.5 . 8080   and slots 1 and 2
//	set cluster-ips  10.96.0.10
//	set hairpin      10.244.1.5 . 10.244.1.5 . tcp . 8080
//	chain lb-a-4     six rules that draw from 4 slots, one that draws from 2
//	chain ext-np-4   a rule that sets the mark for masquerading, then the same
//
// eps-a is the shard of eps for this key (shards.go), lb-a-4 the chain of class 4 for
// that shard, and ext- means masquerade. The first packet of a connection of the pod
// 10.244.2.4 to 10.96.0.10:80 passes these chains (base.go):
//
//	guard-prerouting (-110)  guard: not in fw-guarded, so no source ranges apply
//	nat-prerouting (-100)    dispatch: the source is in pod-cidrs, so it gets no mark;
//	                         services: goto lb-a-4. A draw of 3 finds no element, and the
//	                         next rule draws again; a draw of 1: dnat to 10.244.2.7:8080
//	learn-prerouting (-90)   learn: not in affinity, so nothing is remembered
//	filter-forward (-110)    refuse: the new destination is no Frontend: the packet passes
//	nat-postrouting (100)    no mark, not in hairpin: the source address is preserved
//
// Further packets of the connection are translated by conntrack alone. A client
// 203.0.113.9 that connects to 192.0.2.10:30080 finds nodeports: goto ext-np-4, which
// sets the mark, and nat-postrouting masquerades the connection.
//
// A fourth endpoint adds one element to eps-a and one to np-eps. A fifth one also
// creates lb-a-8 and ext-np-8, unless other Services use them already, and changes the
// verdicts in services and nodeports. Without any endpoint the verdict in services is
// return, and no-endpoints has the element 10.96.0.10 . tcp . 80 : goto reject-chain,
// which filter-forward, filter-input and filter-output look up.
//
// Guaranteed: a batch of both families is one transaction, which the kernel applies
// whole or not at all. services and nodeports refer only to chains that exist, also
// while a build needs several batches (kinds.go has the order). The package owns
// everything in the two tables, which it identifies by a mark in their user data, and writes nothing
// outside them. The Driver never runs nft, and never writes objects that nft 1.0.6
// cannot list. Not guaranteed: exactly equal shares; a slot in the upper half of a
// class loses at most 1.6 % of its share (tries). A verdict of accept does not stop a
// drop in another program's table.
//
// The methods of a Driver are called from the engine's goroutine; Watch, Compare and
// Survey may run concurrently.
package nftables
