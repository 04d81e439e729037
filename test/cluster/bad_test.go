package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testBadObjectsStopNobody creates objects that the API server accepts and that a proxy cannot implement, or cannot
// implement twice. It then checks that all other Services keep working: those created before, those created after,
// and both across a restart.
func testBadObjectsStopNobody(t *testing.T, e *env) {
	before := clusterIPs(e.createService("before"))
	e.setBackends("before", 8080, "pod-a1")
	e.agent.start()
	e.eventually("the Service from before answers", e.reach(before, 8080, "pod-a1"))

	for _, b := range badServices {
		e.createService(b.name, b.change)
		e.setBackends(b.name, 8080, "pod-b1")
	}
	e.createBadSlices()
	e.setIngress("bad-ingress", "192.0.2.9", "192.0.2.9", "2001:db8::9")
	e.setIngress("bad-external-1", "192.0.2.7")

	after := clusterIPs(e.createService("after"))
	e.setBackends("after", 8080, "pod-a2")
	e.eventually("a Service created after the bad ones", e.reach(after, 8080, "pod-a2"))
	e.setBackends("before", 8080, "pod-a3")
	e.eventually("a change of the Service from before", e.reach(before, 8080, "pod-a3"))
	e.agent.mustLive()

	e.agent.kill()
	e.setBackends("after", 8080, "pod-b2")
	e.agent.start()
	e.eventually("a change over a restart", e.reach(after, 8080, "pod-b2"))
	e.eventually("the rest after a restart", e.reach(before, 8080, "pod-a3"))
	e.agent.mustLive()
}

func external(ips ...string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.ExternalIPs = ips }
}

var badServices = []struct {
	name   string
	change func(*corev1.ServiceSpec)
}{
	{"bad-external-1", func(s *corev1.ServiceSpec) {
		s.ExternalIPs, s.Type = []string{"192.0.2.7", "192.0.2.8"}, corev1.ServiceTypeLoadBalancer
	}},
	{"bad-external-2", external("192.0.2.7", "192.0.2.7")},          // the address and port of another Service, and its own address twice
	{"bad-external-node", external("172.18.0.2", "fd00:172:18::2")}, // the node's own addresses
	{"bad-external-all", external("0.0.0.1", "255.255.255.255", "240.0.0.1")},
	{"bad-ingress", func(s *corev1.ServiceSpec) {
		s.Type, s.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{" 10.0.0.0/8 ", "10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32"}
	}},
	{"bad-affinity", func(s *corev1.ServiceSpec) {
		longest := int32(86400)
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &longest}}
	}},
	{"bad-" + strings.Repeat("x", 59), func(s *corev1.ServiceSpec) {
		s.Ports = nil
		for port := int32(1); port <= 200; port++ {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: strings.Repeat("p", 12) + string(rune('a'+port/26)) + string(rune('a'+port%26)), Protocol: corev1.ProtocolTCP, Port: port})
		}
	}},
}

// createBadSlices adds slices to existing and to missing Services. The slices carry labels with their own names.
func (e *env) createBadSlices() {
	add := func(name string, change func(*discoveryv1.EndpointSlice)) {
		e.t.Helper()
		s := e.slice("bad-affinity", discoveryv1.AddressTypeIPv4, 8080, "pod-b1")
		s.Name = name
		change(s)
		e.putSlice(s)
	}
	add("bad-double", func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, s.Endpoints[0]) })
	add("bad-fqdn", func(s *discoveryv1.EndpointSlice) {
		s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeFQDN, []string{"pod.example.com"}
	})
	add("bad-no-port", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port, s.Ports[1].Port = nil, nil })
	add("bad-no-ports", func(s *discoveryv1.EndpointSlice) { s.Ports = nil })
	add("bad-orphan", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "nobody" })
	add("bad-label", func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) })
	add("bad-time", func(s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "yesterday"}
	})
}

// setIngress writes the addresses of a load balancer into the status.
func (e *env) setIngress(name string, ips ...string) {
	e.t.Helper()
	api := e.cluster.Admin.CoreV1().Services(e.namespace)
	svc, err := api.Get(e.t.Context(), name, metav1.GetOptions{})
	must(e.t, err)
	for _, ip := range ips {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	_, err = api.UpdateStatus(e.t.Context(), svc, metav1.UpdateOptions{})
	must(e.t, err)
}
