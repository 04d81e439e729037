package convert

import (
	"net/netip"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/model"
)

// Slice converts an EndpointSlice. The result is nil, with a Problem, if the slice
// belongs to no Service or to no IP family. It is nil without a Problem if the
// endpoints are host names, which no proxy uses.
func (c *Converter) Slice(o *discoveryv1.EndpointSlice) (*model.Slice, []model.Problem) {
	r := &report{kind: "EndpointSlice", namespace: o.Namespace, name: o.Name}
	s := &model.Slice{Key: model.SliceKey{Namespace: c.intern(o.Namespace), Name: strings.Clone(o.Name)}}
	service := o.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		r.add("metadata.labels", "%s is missing: the slice belongs to no Service", discoveryv1.LabelServiceName)
		return nil, r.done()
	}
	s.Service = model.ServiceKey{Namespace: s.Key.Namespace, Name: partOf(s.Key.Name, service)}
	switch o.AddressType {
	case discoveryv1.AddressTypeIPv4:
		s.Family = model.IPv4
	case discoveryv1.AddressTypeIPv6:
		s.Family = model.IPv6
	case discoveryv1.AddressTypeFQDN:
		return nil, nil // legal, but not used by proxies
	default:
		r.add("addressType", "%q is neither IPv4 nor IPv6: the slice is not used", o.AddressType)
		return nil, r.done()
	}
	_, s.Headless = o.Labels[HeadlessLabel]
	s.Ports = c.slicePorts(o.Ports, r)
	s.Endpoints = c.endpoints(o, s.Family, r)
	return s, r.done()
}

// partOf returns a copy of part. It shares the memory of whole if whole starts with
// part: the controller names slices "<service>-xxxxx".
func partOf(whole, part string) string {
	if strings.HasPrefix(whole, part) {
		return whole[:len(part)]
	}
	return strings.Clone(part)
}

func (c *Converter) slicePorts(ports []discoveryv1.EndpointPort, r *report) []model.SlicePort {
	const field = "ports"
	var out []model.SlicePort
	for i := range ports {
		p := &ports[i]
		if p.Port == nil {
			r.add(in(field, i, "port"), "missing: a slice of all ports cannot be proxied")
			continue
		}
		if err := checkPort(*p.Port); err != nil {
			r.add(in(field, i, "port"), "%v", err)
			continue
		}
		port := model.SlicePort{Protocol: model.TCP, Port: uint16(*p.Port)}
		if p.Protocol != nil {
			protocol, ok := model.ParseProtocol(string(*p.Protocol))
			if !ok {
				r.add(in(field, i, "protocol"), "%q is none of TCP, UDP, SCTP: the port is not used", *p.Protocol)
				continue
			}
			port.Protocol = protocol
		}
		if name := deref(p.Name); !validPortName(name) {
			r.add(in(field, i, "name"), notLabel, name)
			continue
		}
		port.Name = c.intern(deref(p.Name))
		out = append(out, port)
	}
	return out
}

// endpoints converts the endpoints of the slice's family. An address that occurs
// twice counts once, with the conditions that are better for a client.
func (c *Converter) endpoints(o *discoveryv1.EndpointSlice, family model.Family, r *report) []model.Endpoint {
	if len(o.Endpoints) == 0 {
		return nil
	}
	out := make([]model.Endpoint, 0, len(o.Endpoints))
	seen := make(map[netip.Addr]int, len(o.Endpoints))
	strangers, firstStranger := 0, ""
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		if len(e.Addresses) == 0 {
			r.add(in("endpoints", i, "addresses"), "missing")
			continue
		}
		a, err := c.parseEndpoint(e.Addresses[0])
		if err != nil {
			r.add(in("endpoints", i, "addresses[0]"), "%v", err)
			continue
		}
		if model.FamilyOf(a) != family {
			if strangers == 0 {
				firstStranger = in("endpoints", i, "addresses[0]")
			}
			strangers++
			continue
		}
		endpoint := c.endpoint(e, a)
		if h := endpoint.Hostname; h != "" && len(validation.IsDNS1123Label(strings.ToLower(h))) > 0 {
			r.add(in("endpoints", i, "hostname"), "%q is not a DNS label: DNS names the endpoint by its address", h)
			endpoint.Hostname = ""
		}
		if j, twice := seen[a]; twice {
			r.add(in("endpoints", i, "addresses[0]"), "%s occurs twice in the slice: it is used once", a)
			if rank(endpoint) > rank(out[j]) {
				out[j] = endpoint
			}
			continue
		}
		seen[a] = len(out)
		out = append(out, endpoint)
	}
	if strangers > 0 { // one Problem for all of them: the wrong field is addressType
		r.add(firstStranger, "not of addressType %s: %d of %d endpoints are not used", family, strangers, len(o.Endpoints))
	}
	return out
}

func (c *Converter) endpoint(e *discoveryv1.Endpoint, a netip.Addr) model.Endpoint {
	out := model.Endpoint{
		Addr: a, Node: c.intern(deref(e.NodeName)), Zone: c.intern(deref(e.Zone)),
		Hostname: c.intern(deref(e.Hostname)), Hints: c.internHints(e.Hints),
	}
	out.Ready = e.Conditions.Ready == nil || *e.Conditions.Ready
	out.Serving = true // nil means true, as in the API of 1.36 and in kube-proxy
	if e.Conditions.Serving != nil {
		out.Serving = *e.Conditions.Serving
	}
	out.Terminating = e.Conditions.Terminating != nil && *e.Conditions.Terminating
	return out
}

// rank returns the priority of one of two entries with the same address:
// kube-proxy prefers the entry that is not terminating.
func rank(e model.Endpoint) int {
	n := 0
	if !e.Terminating {
		n += 4
	}
	if e.Ready {
		n += 2
	}
	if e.Serving {
		n++
	}
	return n
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
