package model

import (
	"fmt"
	"net/netip"
	"time"
)

// Event is one change of the outside world: exactly one of the keys is set;
// its object is nil when the object is gone. Consumers decide from
// "exists or not", never from an event's type, because events come coalesced,
// repeated and out of order.
type Event struct {
	Service *Keyed[ServiceKey, Service]
	Slice   *Keyed[SliceKey, Slice]
	Node    *Keyed[string, Node]
	Host    *HostAddrs    // addresses of this machine's links
	CIDRs   *ServiceCIDRs // the cluster's Service ranges
	// Cluster is set when the event says that the source describes a cluster: it holds
	// a Node, this machine's or another's. A folder may describe none; an API server
	// always does (policy.ViewInputs.Cluster).
	Cluster bool
	// Exclusions are those whose connections are never accelerated.
	Exclusions *Exclusions
	Synced     string // name of a source that has delivered its first full list
	// Listed is the name of a source that has delivered all that it can read for
	// now, and knows that something is missing. What was delivered is followed,
	// removals included. What an earlier run left in the kernel, and the source has
	// not delivered, stays until Synced.
	Listed string
	// Origin is set when the event is about Problems of something that is no
	// object of its own, such as "file web.yaml" or "API server". No Problems
	// means that it is well again.
	Origin string

	// Trigger is when the outside change happened (the annotation
	// endpoints.kubernetes.io/last-change-trigger-time); zero if unknown.
	Trigger  time.Time
	Received time.Time // when the source saw it
	Problems []Problem // what was wrong with the object; the rest of it is used
}

// Keyed is a key with its object, or nil for "gone".
type Keyed[K comparable, V any] struct {
	Key   K
	Value *V
}

// ServiceCIDRs are the ranges of networking.k8s.io/v1 ServiceCIDR objects.
type ServiceCIDRs struct{ Prefixes []netip.Prefix }

// Exclusions are addresses whose connections are never accelerated, be they of a
// client, of a Service or of an endpoint.
type Exclusions struct{ Prefixes []netip.Prefix }

// ProblemKind is who can repair a Problem.
type ProblemKind uint8

// The kinds of Problems.
const (
	// BadInput is a mistake in one object or file.
	BadInput ProblemKind = iota
	// Unavailable is a source that cannot be read at all, or only in part: the API
	// server, the folder of manifests. What was read before stays in force.
	Unavailable
	// OnNode is a fault of this machine or of its Node: a port that another program
	// has, a Node object that does not exist.
	OnNode
)

// Problem says what is wrong with one object or source, in one line. It never
// stops other objects.
type Problem struct {
	Kind   ProblemKind
	Object string // "Service default/web", "file web.yaml:12", "API server"
	Field  string // "spec.ports[0].port"; "" if the whole object
	Reason string // lower case, no full stop; of kind Unavailable it is the whole sentence
	Well   string // what to say when the Problem is over: "reached the API server again"; "" = nothing
}

// String is the one line a user sees.
func (p Problem) String() string {
	switch {
	case p.Kind == Unavailable:
		return p.Reason
	case p.Field == "":
		return fmt.Sprintf("%s: %s", p.Object, p.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", p.Object, p.Field, p.Reason)
}
