package cluster

import (
	"net/netip"

	"github.com/fairlead/fairlead/test/netlab"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// frontend is one way to reach a Service.
type frontend struct {
	proto netlab.Protocol
	addr  netip.AddrPort
}

// createService creates a dual-stack Service with port 80 in TCP and UDP. change may modify it before it is sent.
func (e *env) createService(name string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	e.t.Helper()
	dual := corev1.IPFamilyPolicyRequireDualStack
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{IPFamilyPolicy: &dual,
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	for _, c := range change {
		c(&svc.Spec)
	}
	made, err := e.cluster.Admin.CoreV1().Services(e.namespace).Create(e.t.Context(), svc, metav1.CreateOptions{})
	must(e.t, err)
	return made
}

func (e *env) updateService(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	e.t.Helper()
	api := e.cluster.Admin.CoreV1().Services(e.namespace)
	svc, err := api.Get(e.t.Context(), name, metav1.GetOptions{})
	must(e.t, err)
	change(&svc.Spec)
	svc, err = api.Update(e.t.Context(), svc, metav1.UpdateOptions{})
	must(e.t, err)
	return svc
}

func (e *env) deleteService(name string) {
	e.t.Helper()
	must(e.t, e.cluster.Admin.CoreV1().Services(e.namespace).Delete(e.t.Context(), name, metav1.DeleteOptions{}))
}

// setBackends writes the Service's two EndpointSlices, one for each family, so that they contain exactly these
// pods.
func (e *env) setBackends(service string, port int32, pods ...string) {
	e.t.Helper()
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		e.putSlice(e.slice(service, family, port, pods...))
	}
}

func (e *env) putSlice(slice *discoveryv1.EndpointSlice) {
	e.t.Helper()
	api := e.cluster.Admin.DiscoveryV1().EndpointSlices(e.namespace)
	_, err := api.Create(e.t.Context(), slice, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = api.Update(e.t.Context(), slice, metav1.UpdateOptions{})
	}
	must(e.t, err)
}

func (e *env) slice(service string, family discoveryv1.AddressType, port int32, pods ...string) *discoveryv1.EndpointSlice {
	e.t.Helper()
	suffix := map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "-4", discoveryv1.AddressTypeIPv6: "-6"}[family]
	s := &discoveryv1.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{Name: service + suffix,
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		name := map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[proto]
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &proto, Port: &port})
	}
	for _, name := range pods {
		pod, err := e.lab.Host(name)
		must(e.t, err)
		addr, node, ready := pod.Addrs.V4, pod.Node, true
		if family == discoveryv1.AddressTypeIPv6 {
			addr = pod.Addrs.V6
		}
		if node == e.lab.Node().Name {
			node = nodeName
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr.String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready}})
	}
	return s
}

// clusterIPs returns the ways to reach a Service on its cluster addresses: each family and port.
func clusterIPs(svc *corev1.Service) (all []frontend) {
	for _, ip := range svc.Spec.ClusterIPs {
		for _, p := range svc.Spec.Ports {
			all = append(all, frontend{protocol(p), netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(p.Port))})
		}
	}
	return all
}

// nodePorts returns the ways to reach a Service on the node.
func (e *env) nodePorts(svc *corev1.Service) (all []frontend) {
	for _, ip := range []netip.Addr{e.lab.Node().Addrs.V4, e.lab.Node().Addrs.V6} {
		for _, p := range svc.Spec.Ports {
			all = append(all, frontend{protocol(p), netip.AddrPortFrom(ip, uint16(p.NodePort))})
		}
	}
	return all
}

func protocol(p corev1.ServicePort) netlab.Protocol {
	if p.Protocol == corev1.ProtocolUDP {
		return netlab.UDP
	}
	return netlab.TCP
}
