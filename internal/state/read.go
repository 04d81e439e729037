package state

import (
	"iter"

	"github.com/fairlead/fairlead/internal/model"
)

// Service returns the Service (nil if unknown) and its slices. Both are shared: they
// are read-only and valid until the next Apply.
func (s *State) Service(key model.ServiceKey) (*model.Service, []*model.Slice) {
	r := s.services[key]
	if r == nil {
		return nil, nil
	}
	return r.service, r.slices
}

// Keys iterates over every Service key that has a Service or a slice, in no order.
func (s *State) Keys() iter.Seq[model.ServiceKey] {
	return func(yield func(model.ServiceKey) bool) {
		for k := range s.services {
			if !yield(k) {
				return
			}
		}
	}
}

// Node returns the Node object of this machine from the source; nil if the source has none.
func (s *State) Node() *model.Node { return s.node }

// KnownNode returns the last known state of the Node of this machine. The data of a
// deleted Node stays known, and so do the addresses and pod CIDRs that the current Node
// lacks. nil: there has never been a Node.
func (s *State) KnownNode() *model.Node { return s.known }

// Cluster reports whether a source has, or has had, a Node.
func (s *State) Cluster() bool { return s.cluster }

// Zone returns the last known zone of this node; "" if unknown.
func (s *State) Zone() string {
	if s.known == nil {
		return ""
	}
	return s.known.Zone
}

// Host returns the addresses of this machine's links.
func (s *State) Host() model.HostAddrs { return s.host }

// ServiceCIDRs returns the cluster's Service ranges.
func (s *State) ServiceCIDRs() model.ServiceCIDRs { return s.cidrs }

// Exclusions returns the addresses whose connections are never accelerated.
func (s *State) Exclusions() model.Exclusions { return s.excluded }

// Counts returns the number of proxied Services, of slices and of their endpoints.
func (s *State) Counts() (services, slices, endpoints int) {
	return s.proxied, len(s.slices), s.endpoints
}
