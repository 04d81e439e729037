package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/headless/kubeapi"
)

const (
	namespace = "default"
	nodeName  = "node-a"
	perSlice  = 1000 // endpoints in a slice, the maximum in Kubernetes
)

// cluster is Services with the same small number of endpoints each, except for a few with many endpoints, which get no requests. So the
// number of endpoints is that of a large cluster, the list of a Service that gets requests is as long in every trial, and only the
// number of Services differs.
type cluster struct {
	api      *kubeapi.API
	each     int
	services int // the current number
}

const (
	large     = 10    // Services with many endpoints
	largeEach = 2_000 // endpoints of each of them
)

func newCluster(each int) *cluster {
	c := &cluster{api: kubeapi.New(), each: each}
	c.api.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Spec:   corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddr}}}})
	c.api.Put("servicecidrs", &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}})
	return c
}

// grow increases the number of Services to the given one, and returns the number of all endpoints.
func (c *cluster) grow(services int) (endpoints int) {
	for ; c.services < services; c.services++ {
		i := c.services
		c.api.Put("services", service(i))
		if i >= large {
			c.api.Put("endpointslices", slice(i, 0, large*largeEach+(i-large)*c.each, c.each))
			continue
		}
		for from := 0; from < largeEach; from += perSlice {
			c.api.Put("endpointslices", slice(i, from/perSlice, i*largeEach+from, min(perSlice, largeEach-from)))
		}
	}
	return large*largeEach + (services-large)*c.each
}

func serviceIP(i int) string { return fmt.Sprintf("10.%d.%d.%d", 100+i>>16, i>>8&255, i&255) }

func endpointIP(k int) string {
	k += 256
	return fmt.Sprintf("10.%d.%d.%d", 200+k>>16, k>>8&255, k&255)
}

func serviceName(i int) string { return fmt.Sprintf("svc-%d", i) }

func service(i int) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceName(i)},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: serviceIP(i), ClusterIPs: []string{serviceIP(i)},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: servicePort}}}}
}

// slice returns a slice with count endpoints of a Service, from the first of the cluster's numbering on.
func slice(i, number, first, count int) *discoveryv1.EndpointSlice {
	name, port, proto, yes, node := "http", int32(endpointPort), corev1.ProtocolTCP, true, "node-b"
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", serviceName(i), number),
			Labels: map[string]string{discoveryv1.LabelServiceName: serviceName(i)}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
	for k := range count {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{endpointIP(first + k)}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes}})
	}
	return s
}
