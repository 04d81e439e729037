package k8s

import (
	"hash/maphash"
	"net/netip"

	"github.com/fairlead/fairlead/internal/model"
)

// digester computes a digest of an object's content. Two different contents have the
// same digest with probability 1 in 2^64. Then that update is lost, and the next update
// repairs the state.
type digester struct{ seed maphash.Seed }

func writeAll[T comparable](h *maphash.Hash, list []T) {
	maphash.WriteComparable(h, len(list))
	for i := range list {
		maphash.WriteComparable(h, list[i])
	}
}

func (d digester) service(s *model.Service, problems []model.Problem) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	maphash.WriteComparable(&h, struct {
		key                                          model.ServiceKey
		created                                      int64
		proxied, headless, guarded, internal, extern bool
		externalName, distribution                   string
		affinity                                     int64
		health                                       uint16
	}{
		s.Key, s.Created, s.Proxied, s.Headless, s.SourceGuarded, s.InternalLocal, s.ExternalLocal,
		s.ExternalName, s.TrafficDistribution, int64(s.AffinityTimeout), s.HealthCheckNodePort,
	})
	writeAll(&h, s.ClusterIPs)
	writeAll(&h, s.ExternalIPs)
	writeAll(&h, s.LoadBalancerIPs)
	writeAll(&h, s.SourceRanges)
	writeAll(&h, s.Ports)
	e := &s.Extras
	park := int64(-1)
	if e.DNSPark != nil {
		park = int64(*e.DNSPark)
	}
	writeAll(&h, []string{e.Weights, e.PortRange, e.IPVSScheduler})
	maphash.WriteComparable(&h, e.ConsistentHash)
	maphash.WriteComparable(&h, park)
	maphash.WriteComparable(&h, e.Offload)
	maphash.WriteComparable(&h, e.Relay)
	writeAll(&h, e.NodePortRanges)
	writeAll(&h, problems)
	return h.Sum64()
}

func (d digester) slice(s *model.Slice, problems []model.Problem) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	writeAll(&h, problems)
	if s == nil {
		return h.Sum64()
	}
	maphash.WriteComparable(&h, s.Service)
	maphash.WriteComparable(&h, s.Family)
	maphash.WriteComparable(&h, s.Headless)
	writeAll(&h, s.Ports)
	for i := range s.Endpoints {
		e := s.Endpoints[i]
		if e.Hints != nil { // hash the content, not the pointer
			writeAll(&h, e.Hints.Zones)
			writeAll(&h, e.Hints.Nodes)
			e.Hints = nil
		}
		maphash.WriteComparable(&h, e)
	}
	return h.Sum64()
}

func (d digester) node(n *model.Node, problems []model.Problem) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	writeAll(&h, []string{n.Name, n.Zone})
	maphash.WriteComparable(&h, n.Leaving)
	writeAll(&h, n.Addrs)
	writeAll(&h, n.PodCIDRs)
	writeAll(&h, problems)
	return h.Sum64()
}

func (d digester) prefixes(list []netip.Prefix, problems []model.Problem) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	writeAll(&h, list)
	writeAll(&h, problems)
	return h.Sum64()
}
