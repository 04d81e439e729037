package model

import (
	"net/netip"
	"slices"
)

// SliceKey identifies an EndpointSlice.
type SliceKey struct{ Namespace, Name string }

// String returns "namespace/name".
func (k SliceKey) String() string { return k.Namespace + "/" + k.Name }

// Slice is one EndpointSlice. Endpoints of a family other than Family, and
// ports that are nil or 0, were dropped by the source with a Problem.
type Slice struct {
	Key       SliceKey
	Service   ServiceKey // from the label kubernetes.io/service-name
	Family    Family
	Headless  bool // carries service.kubernetes.io/headless: for DNS only
	Ports     []SlicePort
	Endpoints []Endpoint
}

// SlicePort is one entry of ports; its name refers to the name of a ServicePort.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one entry of endpoints. Only its first address is used, as in
// kube-proxy. The source interns the strings: a node's name is stored once.
type Endpoint struct {
	Addr        netip.Addr
	Node        string // "" if unknown
	Zone        string // "" if unknown
	Hostname    string // spec.hostname of the pod, for DNS; usually ""
	Hints       *Hints // nil = none
	Ready       bool   // nil in the API means true
	Serving     bool   // nil in the API means true
	Terminating bool
}

// Hints are endpoints[].hints; shared between endpoints, read-only.
type Hints struct {
	Zones []string
	Nodes []string
}

// Equal reports whether two slices are equal for every consumer.
func (s *Slice) Equal(o *Slice) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Key == o.Key && s.Service == o.Service && s.Family == o.Family && s.Headless == o.Headless &&
		slices.Equal(s.Ports, o.Ports) && slices.EqualFunc(s.Endpoints, o.Endpoints, Endpoint.Equal)
}

// Equal reports whether two endpoints are equal, with hints compared by content.
func (e Endpoint) Equal(o Endpoint) bool {
	if e.Hints != o.Hints {
		if e.Hints == nil || o.Hints == nil ||
			!slices.Equal(e.Hints.Zones, o.Hints.Zones) || !slices.Equal(e.Hints.Nodes, o.Hints.Nodes) {
			return false
		}
		o.Hints = e.Hints
	}
	return e == o
}
