package model

import (
	"fmt"
	"net/netip"
	"time"
)

// FrontendKind says where a Frontend comes from.
type FrontendKind uint8

// The kinds of Frontend.
const (
	ClusterIP FrontendKind = iota + 1
	ExternalIP
	LoadBalancer
	NodePort
)

// String returns the spelling of explanations and logs.
func (k FrontendKind) String() string {
	return [...]string{"none", "ClusterIP", "ExternalIP", "LoadBalancer", "NodePort"}[k]
}

// External reports whether traffic to the Frontend follows externalTrafficPolicy.
func (k FrontendKind) External() bool { return k != ClusterIP }

// FrontendKey is what a packet must be sent to. It is unique in the whole node:
// of two Services that claim one key, policy lets the older have it.
type FrontendKey struct {
	Family   Family
	Protocol Protocol
	Addr     netip.Addr // the zero Addr for a NodePort: any address in NodeView.NodePortAddrs
	Port     uint16
	// LastPort is 0 for one port. Otherwise the Frontend is the range Port..LastPort
	// (fairlead.dev/port-range): of each address and protocol there is one at most,
	// and a Frontend of one port inside it goes before.
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

// Verdict is what happens to a new connection to a Frontend.
type Verdict uint8

// The verdicts.
const (
	Forward Verdict = iota + 1 // to one of the backends
	Reject                     // no endpoint anywhere: TCP reset, else ICMP port unreachable
	Drop                       // endpoints exist, but the traffic policy allows none of them
)

// String returns the spelling of explanations.
func (v Verdict) String() string {
	return [...]string{"none", "forward", "reject", "drop"}[v]
}

// Frontend is policy's whole decision for one key: every data plane renders
// exactly this and decides nothing more.
type Frontend struct {
	Key     FrontendKey
	Kind    FrontendKind
	Service ServiceKey
	Port    string // name of the ServicePort

	// Verdict and Backends hold for every client of a Frontend that is not
	// LocalOnly, and for pods and the node itself when it is (the short cut of
	// externalTrafficPolicy Local). Backends is empty unless Verdict is Forward;
	// sorted by address, then port; no duplicates.
	Verdict  Verdict
	Backends []Backend

	// LocalOnly is externalTrafficPolicy Local: a client that is neither a pod
	// nor this node gets LocalVerdict and LocalBackends, its address preserved.
	LocalOnly     bool
	LocalVerdict  Verdict
	LocalBackends []Backend

	// Masquerade: every connection to Backends is given this node's address
	// (external traffic under policy Cluster). ClusterIP traffic is masqueraded by
	// NodeView: all of it (MasqueradeAll), or what does not come from a pod
	// (Local).
	Masquerade bool

	AffinityTimeout time.Duration // 0 = none

	// ConsistentHash: an endpoint is chosen by a hash of the client's address.
	// HashTable and LocalHashTable then say which one, for Backends and
	// LocalBackends; each is empty where its list is.
	ConsistentHash            bool
	HashTable, LocalHashTable HashTable

	// IPVSScheduler is the one that the Service asks for, "" if it asks for none. Only IPVS has schedulers.
	IPVSScheduler string

	// Guarded: only SourceRanges may connect, nobody if there are none; everything
	// else is dropped. Ranges are masked, sorted, none inside another.
	Guarded      bool
	SourceRanges []netip.Prefix

	// Offload is the Service's wish for acceleration: after so many packets a
	// connection is taken past the rules; 0: after as many as the node has it, -1: never.
	Offload int

	// Relay are the Service's wishes that only userspace mode can fulfil.
	Relay Relaying

	// HealthCheckNodePort is the Service's, under externalTrafficPolicy Local; 0 =
	// none. A data plane that shares its hooks with a host firewall lets it in.
	HealthCheckNodePort uint16

	// Others are the endpoints of the port that exist but are in neither list:
	// not ready, ending, out of this node's topology, or of weight 0. No data
	// plane renders them: they tell the followers of commits which running flows
	// may stay. Sorted as Backends are.
	Others []Other
}

// Refuses reports whether every client is refused, whoever he is: there is no endpoint for anybody.
func (f *Frontend) Refuses() bool {
	return f.Verdict == Reject && (!f.LocalOnly || f.LocalVerdict == Reject)
}

// Other is an endpoint that gets no new connection.
type Other struct {
	Addr    netip.AddrPort
	Serving bool
	Why     Unused
}

// Unused says why an endpoint gets no new connection.
type Unused uint8

// The reasons.
const (
	NotReady  Unused = iota + 1
	Ended            // terminating, and serving no more
	Ending           // terminating and still serving, while others are ready
	FarAway          // the topology hints keep clients of this node to other endpoints
	Elsewhere        // the traffic policy is Local, and it is on another node
	NoWeight         // fairlead.dev/weights gives it 0
	TooMany          // the list was full
)

// String returns the reason in words.
func (u Unused) String() string {
	return [...]string{"used", "not ready", "terminating and not serving", "terminating, and others are ready",
		"the topology hints send this node's clients to other endpoints", "on another node, and the traffic policy is Local",
		"its weight is 0", "the Service port has more endpoints than can be served"}[u]
}

// Backend is one endpoint a Frontend may choose.
type Backend struct {
	Addr   netip.Addr
	Port   uint16 // 0 in a range: the port that the client asked for
	Weight uint16 // 1 unless asked otherwise; never 0
	Local  bool   // runs on this node (hairpin is possible)
}

// AddrPort returns the backend's address and port.
func (b Backend) AddrPort() netip.AddrPort { return netip.AddrPortFrom(b.Addr, b.Port) }
