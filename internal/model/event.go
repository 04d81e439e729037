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
	Synced  string        // name of a source that has delivered its first full list
	// Origin is set when the event is about Problems of something that is no
	// object of its own, such as "file web.yaml" or "kubernetes API". No Problems
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

// Problem says what is wrong with one object, in one line, naming the object
// and the field. It never stops other objects.
type Problem struct {
	Object string // "Service default/web", "file web.yaml:12"
	Field  string // "spec.ports[0].port"; "" if the whole object
	Reason string // lower case, no full stop
}

// String is the one line a user sees.
func (p Problem) String() string {
	if p.Field == "" {
		return fmt.Sprintf("%s: %s", p.Object, p.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", p.Object, p.Field, p.Reason)
}
