package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
)

// service returns a Service of the cluster of ../baseline: one TCP port a Service,
// every tenth a NodePort, a fifth of the endpoints on this node.
func service(i int) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("svc-%d", i)},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: serviceIP(i), ClusterIPs: []string{serviceIP(i)},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
	}
	if i%10 == 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = int32(30000 + i/10)
	}
	return s
}

func serviceIP(i int) string { return fmt.Sprintf("10.%d.%d.%d", 64+i>>16, i>>8&255, i&255) }

func endpointIP(k int) string {
	k += 65536
	return fmt.Sprintf("10.%d.%d.%d", 128+k>>16, k>>8&255, k&255)
}

// slice returns a slice with endpoints first..first+count of the cluster's numbering.
func slice(i, first, count int) *discoveryv1.EndpointSlice {
	name, port, proto := "http", int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("svc-%d-1", i),
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc-%d", i)}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
	yes, here, there := true, "node0", "node1"
	for j := range count {
		node := &there
		if j < count/5 {
			node = &here
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{endpointIP(first + j)}, NodeName: node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes}})
	}
	return s
}

// cluster creates the objects of one size on demand, so that the process's memory is
// the agent's. makeAll measures the cost of creating them, which is subtracted from the
// agent's CPU.
type cluster struct {
	n, e int
	last map[int]int // by Service: the last change made to its slice
}

// slice returns the current slice of Service i.
func (c *cluster) slice(i int) *discoveryv1.EndpointSlice {
	s := slice(i, i*c.e, c.e)
	if turn := c.last[i]; turn > 0 {
		s.Endpoints[c.e-1].Addresses[0] = fmt.Sprintf("172.16.%d.%d", turn>>8&255, turn&255)
	}
	return s
}

// makeAll creates every object and drops it, and returns the CPU time that it took.
func (c *cluster) makeAll() time.Duration {
	t0 := cpu()
	for i := range c.n {
		service(i)
		c.slice(i)
	}
	return cpu() - t0
}

// change replaces the last endpoint of Service i's slice with one of a spare range.
func (c *cluster) change(i, turn int) *discoveryv1.EndpointSlice {
	c.last[i] = turn
	return c.slice(i)
}

func serviceEvent(cv *convert.Converter, o *corev1.Service) model.Event {
	m, problems := cv.Service(o)
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: m.Key, Value: m}, Problems: problems}
}

func sliceEvent(cv *convert.Converter, o *discoveryv1.EndpointSlice) model.Event {
	m, problems := cv.Slice(o)
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: m.Key, Value: m}, Problems: problems}
}
