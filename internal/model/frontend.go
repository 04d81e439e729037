package model

import (
	"fmt"
	"net/netip"
	"time"
)

// FrontendKind is the kind of Service address that a Frontend comes from.
type FrontendKind uint8

// The kinds of Frontend.
const (
	ClusterIP FrontendKind = iota + 1
	ExternalIP
	LoadBalancer
	NodePort
)

// String returns the spelling in explanations and logs.
func (k FrontendKind) String() string {
	return [...]string{"none", "ClusterIP", "ExternalIP", "LoadBalancer", "NodePort"}[k]
}

// External reports whether traffic to the Frontend follows externalTrafficPolicy.
func (k FrontendKind) External() bool { return k != ClusterIP }

// FrontendKey is the destination of the packets of a Frontend. It is unique on the
// node: if two Services claim one key, the older one owns it (see policy).
type FrontendKey struct {
	Family   Family
	Protocol Protocol
	Addr     netip.Addr // the zero Addr for a NodePort: any address in NodeView.NodePortAddrs
	Port     uint16
	// LastPort is 0 for one port. Otherwise the Frontend is the range Port..LastPort
	// (fairlead.dev/port-range). Each address and protocol has at most one range,
	// and a Frontend of one port inside the range takes precedence.
	LastPort uint16
}

// Range reports whether the key is a range of ports.
func (k FrontendKey) Range() bool { return k.LastPort != 0 }

// String returns "10.0.0.1:80/TCP", "10.0.0.1:8000-8999/TCP" or "*4:30080/TCP".
func (k FrontendKey) String() string {
	at := netip.AddrPortFrom(k.Addr, k.Port).String()
	if !k.Addr.IsValid() {
		at = fmt.Sprintf("*%d:%d", k.Family, k.Port)
	}
	if k.Range() {
		at = fmt.Sprintf("%s-%d", at, k.LastPort)
	}
	return at + "/" + k.Protocol.String()
}

// Verdict is the handling of a new connection to a Frontend.
type Verdict uint8

// The verdicts.
const (
	Forward Verdict = iota + 1 // to one of the backends
	Reject                     // no usable endpoint anywhere: TCP reset, else ICMP port unreachable
	Drop                       // endpoints exist, but the traffic policy allows none of them
)

// String returns the spelling in explanations.
func (v Verdict) String() string {
	return [...]string{"none", "forward", "reject", "drop"}[v]
}

// Frontend is policy's complete decision for one key: what happens to a new connection to that destination on this node. It
// has one list of backends and one verdict for all clients; under externalTrafficPolicy Local it has two of each, one for
// pods and this node, one for all other clients. Every data plane renders exactly this decision and makes no further ones, so
// that all modes forward packets in the same way.
//
// Example: node-a, Service shop/web with externalTrafficPolicy Local, ClusterIP 10.96.0.10, port 80 "http" and node port
// 30080. Its endpoints are 10.244.1.5:8080 on node-a, and 10.244.2.7:8080 and 10.244.3.9:8080 on other nodes; the last one is
// not ready. The decision is two Frontends:
//
//	Key            10.96.0.10:80/TCP                  *4:30080/TCP
//	Kind           ClusterIP                          NodePort
//	Verdict        Forward                            Forward
//	Backends       10.244.1.5:8080, 10.244.2.7:8080   the same
//	LocalOnly      false                              true
//	LocalVerdict   unset                              Forward
//	LocalBackends  empty                              10.244.1.5:8080
//	Others         10.244.3.9:8080, NotReady          the same
//
// If 10.244.1.5 ceases to be ready, Backends are 10.244.2.7:8080 in both. In the second one LocalBackends are empty, and
// LocalVerdict is Drop: endpoints exist, but the policy allows none of them. If no endpoint of the Service is usable, LocalOnly is false, Verdict is Reject and
// Backends are empty, in both Frontends.
//
// Guaranteed: equal inputs result in equal Frontends, in whatever order they came (TestHistoryDoesNotMatter). A list has
// entries only if its verdict is Forward. No two Frontends of this node have the same key. Not guaranteed: that a Frontend
// exists for each address of a Service; policy leaves out keys that another Service owns and addresses that it does not admit.
//
// The Frontends of one Service port share their lists. A Frontend is read-only, but Result.OneList of package policy replaces
// some of its lists.
type Frontend struct {
	Key     FrontendKey
	Kind    FrontendKind
	Service ServiceKey
	Port    string // name of the ServicePort

	// Verdict and Backends apply to every client of a Frontend that is not
	// LocalOnly. If it is, they apply to pods and to the node itself (the short cut of
	// externalTrafficPolicy Local). Backends is empty unless Verdict is Forward;
	// sorted by address, then port; no duplicates.
	Verdict  Verdict
	Backends []Backend

	// LocalOnly is externalTrafficPolicy Local of a port that has a usable endpoint, on
	// this node or another one: a client that is neither a pod nor this node gets LocalVerdict and
	// LocalBackends, and its address is preserved.
	LocalOnly     bool
	LocalVerdict  Verdict
	LocalBackends []Backend

	// Masquerade: the source address of every connection to Backends becomes this
	// node's address (external traffic under policy Cluster). For ClusterIP traffic
	// NodeView decides: all of it is masqueraded (MasqueradeAll), or the traffic that
	// does not come from a pod (Local).
	Masquerade bool

	AffinityTimeout time.Duration // since the last new connection of the client; 0 = none, and in a range always

	// ConsistentHash: a hash of the client's address selects the endpoint (fairlead.dev/consistent-hash; in
	// a range also if the Service has session affinity).
	// HashTable and LocalHashTable are the lookup tables for Backends and
	// LocalBackends; each is empty if its list is.
	ConsistentHash            bool
	HashTable, LocalHashTable HashTable

	// IPVSScheduler is the scheduler that the Service requests, "" if it requests none. Only IPVS has schedulers.
	IPVSScheduler string

	// Guarded: only clients in SourceRanges may connect, and no client if there are no
	// ranges; everything else is dropped. Ranges are masked, sorted, none inside another.
	Guarded      bool
	SourceRanges []netip.Prefix

	// Offload is the acceleration that the Service requests: the number of packets after
	// which a connection bypasses the rules; 0: the number that the node has, -1: never.
	Offload int

	// Relay holds the settings of the Service that only userspace mode supports.
	Relay Relaying

	// HealthCheckNodePort is the one of the Service, under externalTrafficPolicy Local;
	// 0 = none. A data plane that shares its hooks with a host firewall accepts it.
	HealthCheckNodePort uint16

	// Others are the endpoints of the port that exist but are in neither list: not
	// ready, terminating, outside this node's topology, or of weight 0. No data plane
	// renders them. The observers of commits use them to decide which established flows
	// may stay. They are sorted like Backends.
	Others []Other
}

// Refuses reports whether connections of every client are rejected: no client has an endpoint.
func (f *Frontend) Refuses() bool {
	return f.Verdict == Reject && (!f.LocalOnly || f.LocalVerdict == Reject)
}

// Other is an endpoint that gets no new connection through a Frontend. Serving is that of the EndpointSlice, or true if the
// endpoint is ready.
type Other struct {
	Addr    netip.AddrPort
	Serving bool
	Why     Unused
}

// Unused is the reason why an endpoint gets no new connection.
type Unused uint8

// The reasons.
const (
	NotReady  Unused = iota + 1
	Ended            // terminating, and no longer serving
	Ending           // terminating and still serving, while others are ready
	FarAway          // the topology hints direct clients of this node to other endpoints
	Elsewhere        // the traffic policy is Local, and it is on another node
	NoWeight         // fairlead.dev/weights sets it to 0
	TooMany          // the list was full
)

// String returns the reason in words.
func (u Unused) String() string {
	return [...]string{"used", "not ready", "terminating and not serving", "terminating, and others are ready",
		"the topology hints send this node's clients to other endpoints", "on another node, and the traffic policy is Local",
		"its weight is 0", "the Service port has more endpoints than can be served"}[u]
}

// Backend is one endpoint to which a Frontend may forward.
type Backend struct {
	Addr   netip.Addr
	Port   uint16 // 0 in a range: the destination port of the client's packet
	Weight uint16 // 1 unless the Service sets another; never 0
	Local  bool   // runs on this node (hairpin is possible)
}

// AddrPort returns the backend's address and port.
func (b Backend) AddrPort() netip.AddrPort { return netip.AddrPortFrom(b.Addr, b.Port) }
