package model

import (
	"net/netip"
	"slices"
	"time"
)

// ServiceKey identifies a Service.
type ServiceKey struct{ Namespace, Name string }

// String returns "namespace/name", as logs and metrics of the field write it.
func (k ServiceKey) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then name.
func (k ServiceKey) Compare(o ServiceKey) int {
	if k.Namespace != o.Namespace {
		if k.Namespace < o.Namespace {
			return -1
		}
		return 1
	}
	switch {
	case k.Name < o.Name:
		return -1
	case k.Name > o.Name:
		return 1
	}
	return 0
}

// Service is one Kubernetes Service, for both families, with only the fields that a
// consumer needs. Sources fill it with validated values: every address is valid (but
// see ExternalIPs), unmapped and without a zone, every port is in 1..65535.
type Service struct {
	Key     ServiceKey
	Created int64 // creationTimestamp, Unix seconds; 0 if unknown. The older of two claimants of an address wins.

	// Proxied is false for ExternalName and headless Services and for those
	// that carry service.kubernetes.io/service-proxy-name: they have no
	// Frontends, but DNS may still want them.
	Proxied      bool
	Headless     bool
	ExternalName string // without trailing dot; "" unless type ExternalName

	ClusterIPs []netip.Addr // at most one of each family
	// ExternalIPs have the same indexes as in the manifest: an address that the source
	// rejected is the zero Addr.
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr   // status ingress IPs with ipMode VIP or unset
	SourceRanges    []netip.Prefix // spec.loadBalancerSourceRanges, masked; a /0 of a family means "all of it"
	SourceGuarded   bool           // spec.loadBalancerSourceRanges was not empty (even if all entries were of one family)
	Ports           []ServicePort

	InternalLocal bool // internalTrafficPolicy: Local
	ExternalLocal bool // externalTrafficPolicy: Local

	AffinityTimeout     time.Duration // sessionAffinity ClientIP; 0 = none
	HealthCheckNodePort uint16        // 0 = none
	TrafficDistribution string        // spec.trafficDistribution, for explanations only: hints decide

	Extras Extras // the fairlead.dev/ annotations
}

// Extras are the settings of a Service beyond the Kubernetes contract, from its
// annotations. The zero value requests nothing.
type Extras struct {
	Weights        string         // fairlead.dev/weights, "10.0.0.1=3,10.0.0.2=1": raw; policy parses it
	ConsistentHash bool           // fairlead.dev/consistent-hash: "client-ip"
	PortRange      string         // fairlead.dev/port-range
	NodePortRanges []netip.Prefix // fairlead.dev/nodeport-source-ranges
	DNSPark        *time.Duration // fairlead.dev/dns-park; nil = not set
	IPVSScheduler  string         // fairlead.dev/ipvs-scheduler; "" = the agent's
	Offload        int            // fairlead.dev/offload: packets; 0 = not set, -1 = never
	Relay          Relaying
}

// Relaying holds the settings of a Service for a data plane that relays connections
// in a program, as only userspace mode does.
type Relaying struct {
	ProxyProtocol  bool          // fairlead.dev/proxy-protocol: v2
	EndpointGrace  time.Duration // fairlead.dev/endpoint-grace; 0 = the agent's, -1 = no limit
	MaxConnections int           // fairlead.dev/max-connections; 0 = not set
	// KeepSource: endpoints see the client's address (fairlead.dev/source-address: client).
	KeepSource bool
}

// MaxWeight is the largest weight of an endpoint (fairlead.dev/weights).
const MaxWeight = 1000

// ServicePort is one entry of spec.ports.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0 = none
}

// Equal reports whether two Services are equal for every consumer.
func (s *Service) Equal(o *Service) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Key == o.Key && s.Created == o.Created &&
		s.Proxied == o.Proxied && s.Headless == o.Headless && s.ExternalName == o.ExternalName &&
		slices.Equal(s.ClusterIPs, o.ClusterIPs) && slices.Equal(s.ExternalIPs, o.ExternalIPs) &&
		slices.Equal(s.LoadBalancerIPs, o.LoadBalancerIPs) && slices.Equal(s.SourceRanges, o.SourceRanges) &&
		s.SourceGuarded == o.SourceGuarded && slices.Equal(s.Ports, o.Ports) &&
		s.InternalLocal == o.InternalLocal && s.ExternalLocal == o.ExternalLocal &&
		s.AffinityTimeout == o.AffinityTimeout && s.HealthCheckNodePort == o.HealthCheckNodePort &&
		s.TrafficDistribution == o.TrafficDistribution &&
		s.Extras.equal(&o.Extras)
}

func (e *Extras) equal(o *Extras) bool {
	samePark := e.DNSPark == o.DNSPark || (e.DNSPark != nil && o.DNSPark != nil && *e.DNSPark == *o.DNSPark)
	return samePark && e.Offload == o.Offload && e.Relay == o.Relay && e.Weights == o.Weights && e.ConsistentHash == o.ConsistentHash &&
		e.PortRange == o.PortRange && e.IPVSScheduler == o.IPVSScheduler &&
		slices.Equal(e.NodePortRanges, o.NodePortRanges)
}
