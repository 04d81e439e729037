package main

import (
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// objectsEach is how many objects stored returns for one Service.
const objectsEach = 3

// stored returns a Service as the API server stores it: with its slice, and with the address that the allocator
// would have assigned. Without that address the server's repair loop would start to work while the subjects are
// measured.
func stored(svc *corev1.Service, sl *discoveryv1.EndpointSlice) []testcluster.Stored {
	address := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: svc.Spec.ClusterIP, Labels: map[string]string{
		networkingv1.LabelIPAddressFamily: "IPv4", networkingv1.LabelManagedBy: "ipallocator.k8s.io"}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: namespace, Name: svc.Name}}}
	for _, o := range []*metav1.ObjectMeta{&svc.ObjectMeta, &sl.ObjectMeta, &address.ObjectMeta} {
		o.UID, o.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(time.Now())
	}
	svc.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	sl.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	address.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "IPAddress"}
	return []testcluster.Stored{
		{Key: "/registry/ipaddresses/" + address.Name, Object: address},
		{Key: "/registry/services/specs/" + namespace + "/" + svc.Name, Object: svc},
		{Key: "/registry/endpointslices/" + namespace + "/" + sl.Name, Object: sl},
	}
}

func baseService(name, ip string, port, target int32) *corev1.Service {
	single, everywhere := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilyPolicy: &single,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, InternalTrafficPolicy: &everywhere, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(target)}}}}
}

func service(i int) *corev1.Service {
	s := baseService(serviceName(i), serviceIP(i).String(), servicePort, acceptPort)
	if isNodePort(i) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, int32(nodePort(i))
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	return s
}

// endpoints returns the first count of a Service's e endpoints; a fifth of them is on the node under test.
func endpoints(i, e, count int) (all []discoveryv1.Endpoint) {
	for j := range count {
		all = append(all, endpoint(endpointIP(i, e, j).String(), j < e/5))
	}
	return all
}

func endpoint(ip string, local bool) discoveryv1.Endpoint {
	node, yes, no := "node1", true, false
	if local {
		node = nodeName
	}
	return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}
}

func slice(service string, port int32, eps []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name, tcp := "http", corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: eps,
		ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "fairlead-peers"}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &tcp, Port: &port}}}
}
