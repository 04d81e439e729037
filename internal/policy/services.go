package policy

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Services holds the state of every Service and of this node, and from that which
// addresses each may have here (Admit) and which Service owns a key that several claim
// (Claims). The decision for one Service depends on the others through it alone.
type Services struct {
	known  map[model.ServiceKey]admitted
	claims *Claims
	node   Self

	scratch scratch
}

// admitted is a Service as received, and as returned by Admit.
type admitted struct{ asked, served *model.Service }

// NewServices returns an empty table.
func NewServices() *Services {
	return &Services{known: map[model.ServiceKey]admitted{}, claims: NewClaims()}
}

// SetNode updates the state of this node, and returns the Services that must be
// updated and decided again for it. Those with hints are not among them: the owner of
// the slices knows them.
func (s *Services) SetNode(node Self) (dirty []model.ServiceKey) {
	same := slices.Equal(s.node.Addrs, node.Addrs) && slices.Equal(s.node.ServiceCIDRs, node.ServiceCIDRs) &&
		s.node.NoExternalIPs == node.NoExternalIPs && s.node.NoExternalIPsOfNode == node.NoExternalIPsOfNode
	before := s.node
	s.node = node
	if same {
		return nil
	}
	for k, a := range s.known {
		now, _ := Admit(a.asked, &s.node)
		// The node's addresses decide whether a guarded address admits the node itself.
		if a.asked.SourceGuarded || !slices.Equal(now.ExternalIPs, a.served.ExternalIPs) || !slices.Equal(ofNode(now, &s.node), ofNode(now, &before)) {
			dirty = append(dirty, k)
		}
	}
	return dirty
}

// Update replaces the state of a Service, nil if it is gone. It returns the other
// Services that must be decided again, because they gained or lost a key by that, and
// the keys that this one does not claim any more.
func (s *Services) Update(key model.ServiceKey, svc *model.Service) (affected []model.ServiceKey, gone []model.FrontendKey) {
	old := s.known[key].served
	served, _ := Admit(svc, &s.node)
	if served == old {
		return nil, nil
	}
	if svc == nil {
		delete(s.known, key)
	} else {
		s.known[key] = admitted{svc, served}
	}
	return s.claims.Replace(old, served), LostKeys(old, served)
}

// Served returns a Service as last updated, with the addresses that it may have
// here; nil if it is unknown.
func (s *Services) Served(key model.ServiceKey) *model.Service { return s.known[key].served }

// Keys iterates over all Services, in no order.
func (s *Services) Keys() iter.Seq[model.ServiceKey] { return maps.Keys(s.known) }

// ClusterIPOf returns the Service that has Frontends and the address as its ClusterIP;
// of several the lowest name. It reads all Services.
func (s *Services) ClusterIPOf(a netip.Addr) (owner model.ServiceKey, is bool) {
	for k, x := range s.known {
		if x.served == nil || !x.served.Proxied || !slices.Contains(x.served.ClusterIPs, a) {
			continue
		}
		if !is || k.Compare(owner) < 0 {
			owner, is = k, true
		}
	}
	return owner, is
}

// Decide returns the whole decision for one Service as last updated.
func (s *Services) Decide(key model.ServiceKey, list []*model.Slice) Result {
	a := s.known[key]
	res := Frontends(Inputs{Service: a.asked, Slices: list, Node: s.node, scratch: &s.scratch, claims: s.claims})
	if lost := s.claims.Lost(a.served); len(lost) > 0 {
		res.Problems = append(lost, res.Problems...)
		for i := range lost {
			res.Notes = append(res.Notes, Note{Kind: ClaimLost, Text: lost[i].Field + ": " + lost[i].Reason})
		}
	}
	return res
}

// Holder returns the Service that owns a key, and the others that claim it too.
func (s *Services) Holder(key model.FrontendKey) (holder model.ServiceKey, losers []model.ServiceKey, held bool) {
	return s.claims.Holder(key)
}
