package model

import (
	"fmt"
	"net/netip"
	"time"
)

// Event is one update from a source. Exactly one of the keys is set; its object is
// nil if the object was deleted. Consumers handle the current state of the object,
// never a type of event, because events come coalesced, repeated and out of order.
type Event struct {
	Service *Keyed[ServiceKey, Service]
	Slice   *Keyed[SliceKey, Slice]
	Node    *Keyed[string, Node]
	Host    *HostAddrs    // addresses of this machine's links
	CIDRs   *ServiceCIDRs // the cluster's Service ranges
	// Cluster is set if the event reports that the source describes a cluster: it has
	// a Node, of this machine or of another one. A folder may describe no cluster; an API
	// server always does (policy.ViewInputs.Cluster).
	Cluster bool
	// Exclusions are the addresses whose connections are never accelerated.
	Exclusions *Exclusions
	Synced     string // name of a source that has delivered its first full list
	// Listed is the name of a source that has delivered all that it can read for now,
	// and knows that its list is incomplete. The delivered objects are handled as usual,
	// removals included. Objects that an earlier run left in the kernel, and that the
	// source has not delivered, stay until Synced.
	Listed string
	// Origin is set if the event is about Problems of something that is not an
	// object, such as "file web.yaml" or "API server". An empty list of Problems means
	// that they are resolved.
	Origin string

	// Trigger is when the cause of the update happened (the annotation
	// endpoints.kubernetes.io/last-change-trigger-time); zero if unknown.
	Trigger  time.Time
	Received time.Time // when the source received it
	Problems []Problem // invalid parts of the object; the rest of it is used
}

// Keyed is a key with its object; nil if the object was deleted.
type Keyed[K comparable, V any] struct {
	Key   K
	Value *V
}

// ServiceCIDRs are the ranges of networking.k8s.io/v1 ServiceCIDR objects.
type ServiceCIDRs struct{ Prefixes []netip.Prefix }

// Exclusions are addresses whose connections are never accelerated: addresses of
// clients, of Services or of endpoints.
type Exclusions struct{ Prefixes []netip.Prefix }

// ProblemKind is the place where a Problem can be fixed: in the input, in a source or on the node.
type ProblemKind uint8

// The kinds of Problems.
const (
	// BadInput is a mistake in one object or file.
	BadInput ProblemKind = iota
	// Unavailable is a source that cannot be read at all, or only in part: the API
	// server, the folder of manifests. The state that was read before stays in force.
	Unavailable
	// OnNode is a fault of this machine or of its Node: a port that another program
	// owns, a Node object that does not exist.
	OnNode
)

// Problem describes one error in one object or source, in one line. It never affects
// other objects.
type Problem struct {
	Kind   ProblemKind
	Object string // "Service default/web", "file web.yaml:12", "API server"
	Field  string // "spec.ports[0].port"; "" if the whole object
	Reason string // lower case, no full stop; of kind Unavailable it is the whole sentence
	Well   string // what to report when the Problem is resolved: "reached the API server again"; "" = nothing
}

// String returns the one line that a user sees.
func (p Problem) String() string {
	switch {
	case p.Kind == Unavailable:
		return p.Reason
	case p.Field == "":
		return fmt.Sprintf("%s: %s", p.Object, p.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", p.Object, p.Field, p.Reason)
}
