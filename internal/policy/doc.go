// Package policy is the only place that decides what a Service means on this
// node: traffic policies, topology hints, terminating fallback, affinity, source
// ranges, and the verdict when no endpoint is left. It turns inputs into
// Frontends and a NodeView.
//
// A decision has four steps. Admit removes the addresses that the Service must not
// take on this node. Claims decides which Service owns a key that several claim.
// choose joins a Service port with its EndpointSlices and selects the usable
// endpoints, in a cluster list and a local list. decide assigns these lists and
// their verdicts to each Frontend. Services holds the Services and this node, and
// runs the steps for one Service.
//
// Example: node-a, Service shop/web with externalTrafficPolicy Local, ClusterIP
// 10.96.0.10, load balancer IP 198.51.100.7, port 80 and node port 30080. The
// endpoint 10.244.1.5:8080 is on node-a and ready, 10.244.2.7:8080 is on node-b and
// ready, 10.244.3.9:8080 is on node-b, terminating and serving.
//
//	choose      cluster list 10.244.1.5, 10.244.2.7: the ready endpoints; the
//	            terminating one is used only if none is ready (KEP-1669)
//	            local list 10.244.1.5: the ready endpoints on node-a
//	            others 10.244.3.9, with the reason Ending
//	decide      10.96.0.10:80/TCP    Forward to the cluster list
//	            198.51.100.7:80/TCP  LocalOnly: pods and the node to the cluster
//	                                 list, all other clients to the local list
//	            *4:30080/TCP         the same
//
// If 10.244.1.5 ceases to be ready, the local list is empty, and the LocalVerdict of
// the last two Frontends is Drop. If shop/copy then requests the external IP
// 10.96.0.10 for its port 80, shop/web keeps the key, because a ClusterIP has
// precedence. shop/copy gets the Problem "10.96.0.10:80/TCP is already taken by
// Service shop/web" and no Frontend for that key. (If 10.96.0.10 is in a known
// ServiceCIDR, Admit has removed the address already, with another Problem.)
//
// Guaranteed: a decision depends on the current inputs alone, not on earlier ones or
// on their order (TestHistoryDoesNotMatter), and the order of the result is fixed. One
// Service affects another one only through Claims. Not guaranteed: that the data plane
// serves every Frontend (dataplane.Caps.Unsupported), or that the inputs are complete:
// the engine decides when a decision may be written.
//
// It is pure: no I/O, no clock, no goroutine, no Kubernetes types. A Services is not
// safe for concurrent use, because it reuses memory between decisions. Section
// numbers in comments are those of docs/design/contract.md.
package policy
