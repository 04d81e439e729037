package convert

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/model"
)

// ProxyNameLabel marks Services and slices that another proxy serves (KEP-2447).
const ProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// HeadlessLabel marks slices of headless Services. Only DNS uses them.
const HeadlessLabel = corev1.IsHeadlessService

// Service converts a Service, with the API's defaults for what a manifest may omit.
// The result is never nil.
func (c *Converter) Service(o *corev1.Service) (*model.Service, []model.Problem) {
	r := &report{kind: "Service", namespace: o.Namespace, name: o.Name}
	spec := &o.Spec
	s := &model.Service{
		Key:           model.ServiceKey{Namespace: c.intern(o.Namespace), Name: strings.Clone(o.Name)},
		Headless:      spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(spec.ClusterIPs, corev1.ClusterIPNone),
		SourceGuarded: len(spec.LoadBalancerSourceRanges) > 0,
	}
	if !o.CreationTimestamp.IsZero() {
		s.Created = o.CreationTimestamp.Unix()
	}
	kind := serviceType(spec, r)
	if kind == corev1.ServiceTypeExternalName {
		s.Headless = false
		s.ExternalName = externalName(spec.ExternalName, r)
	}
	_, foreign := o.Labels[ProxyNameLabel]
	s.Proxied = kind != corev1.ServiceTypeExternalName && !s.Headless && !foreign
	if kind != corev1.ServiceTypeExternalName && !s.Headless {
		s.ClusterIPs = clusterIPs(spec, r)
	}
	s.ExternalIPs = externalIPs(spec.ExternalIPs, r)
	s.LoadBalancerIPs = ingressIPs(o.Status.LoadBalancer.Ingress, r)
	s.SourceRanges = guards("spec.loadBalancerSourceRanges", spec.LoadBalancerSourceRanges, r)
	s.Ports = c.servicePorts(spec, kind, r)
	s.InternalLocal, s.ExternalLocal = trafficPolicies(spec, kind, r)
	s.AffinityTimeout = affinity(spec, r)
	s.HealthCheckNodePort = healthCheckPort(spec, kind, s.ExternalLocal, r)
	s.TrafficDistribution = trafficDistribution(spec, r)
	s.Extras = extras(o.Annotations, r)
	return s, r.done()
}

func serviceType(spec *corev1.ServiceSpec, r *report) corev1.ServiceType {
	switch spec.Type {
	case "":
		return corev1.ServiceTypeClusterIP
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName:
		return spec.Type
	}
	r.add("spec.type", "%q is unknown: ClusterIP is assumed", spec.Type)
	return corev1.ServiceTypeClusterIP
}

func externalName(name string, r *report) string {
	name = strings.TrimSuffix(name, ".")
	if name == "" {
		r.add("spec.externalName", "missing")
	}
	return strings.Clone(name)
}
