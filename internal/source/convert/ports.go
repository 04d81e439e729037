package convert

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/internal/model"
)

// servicePorts converts spec.ports. If two entries claim the same name, or the same
// number and protocol, the first is used.
func (c *Converter) servicePorts(spec *corev1.ServiceSpec, kind corev1.ServiceType, r *report) []model.ServicePort {
	const field = "spec.ports"
	out := make([]model.ServicePort, 0, len(spec.Ports))
	var taken claimedPorts
	for i := range spec.Ports {
		p := &spec.Ports[i]
		protocol, ok := model.ParseProtocol(string(p.Protocol))
		if !ok {
			r.add(in(field, i, "protocol"), "%q is none of TCP, UDP, SCTP: the port is not used", p.Protocol)
			continue
		}
		if err := checkPort(p.Port); err != nil {
			r.add(in(field, i, "port"), "%v", err)
			continue
		}
		if !validPortName(p.Name) {
			r.add(in(field, i, "name"), notLabel, p.Name)
			continue
		}
		port := model.ServicePort{
			Name: c.intern(p.Name), Protocol: protocol,
			Port: uint16(p.Port), NodePort: nodePort(p, i, kind, r),
		}
		if len(spec.Ports) == 1 { // the usual case: nothing can clash
			return append(out, port)
		}
		if clash := taken.clash(port); clash != "" {
			r.add(in(field, i, clash), "the same as that of an earlier port of this Service: the port is not used")
			continue
		}
		if port.NodePort != 0 && !taken.claim("nodePort", "", port.NodePort, protocol) {
			r.add(in(field, i, "nodePort"), "%d/%s is taken by an earlier port of this Service", port.NodePort, protocol)
			port.NodePort = 0
		}
		out = append(out, port)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

const notLabel = "%.100q is not a DNS label (lower case letters, digits and '-', at most 63 characters): the port is not used"

// validPortName reports whether the API server accepts the name of a port, of a Service or of an EndpointSlice.
func validPortName(name string) bool { return name == "" || len(validation.IsDNS1123Label(name)) == 0 }

// claimedPorts holds the names and numbers of the ports of a Service that were
// converted so far.
type claimedPorts map[portClaim]struct{}

type portClaim struct {
	field, name string
	number      uint16
	protocol    model.Protocol
}

// clash claims the name and the number of a port. It returns the field whose value
// is already claimed, "" if there is none.
func (c *claimedPorts) clash(p model.ServicePort) string {
	if !c.claim("name", p.Name, 0, 0) {
		return "name"
	}
	if !c.claim("port", "", p.Port, p.Protocol) {
		delete(*c, portClaim{field: "name", name: p.Name})
		return "port"
	}
	return ""
}

// claim claims one value of a field. It reports whether the value was free.
func (c *claimedPorts) claim(field, name string, number uint16, protocol model.Protocol) bool {
	if *c == nil {
		*c = make(claimedPorts)
	}
	key := portClaim{field, name, number, protocol}
	if _, taken := (*c)[key]; taken {
		return false
	}
	(*c)[key] = struct{}{}
	return true
}

// nodePort returns ports[i].nodePort; 0 where the type has none. A load balancer
// may have no node port (allocateLoadBalancerNodePorts), a Service of type NodePort
// must have one.
func nodePort(p *corev1.ServicePort, i int, kind corev1.ServiceType, r *report) uint16 {
	if kind != corev1.ServiceTypeNodePort && kind != corev1.ServiceTypeLoadBalancer {
		if p.NodePort != 0 {
			r.add(in("spec.ports", i, "nodePort"), "a Service of type %s has no node ports: ignored", kind)
		}
		return 0
	}
	if p.NodePort == 0 {
		if kind == corev1.ServiceTypeNodePort {
			r.add(in("spec.ports", i, "nodePort"),
				"missing: without an API server none is assigned; write the number")
		}
		return 0
	}
	if err := checkPort(p.NodePort); err != nil {
		r.add(in("spec.ports", i, "nodePort"), "%v", err)
		return 0
	}
	return uint16(p.NodePort)
}
