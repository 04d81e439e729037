package convert

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The default and the maximum of sessionAffinityConfig.clientIP.timeoutSeconds.
const (
	defaultAffinity = corev1.DefaultClientIPServiceAffinitySeconds
	maxAffinity     = 86400
)

// trafficPolicies reports whether internal and external traffic stay on the node.
// The external policy counts only for a Service that can be reached from outside.
func trafficPolicies(spec *corev1.ServiceSpec, kind corev1.ServiceType, r *report) (internal, external bool) {
	if p := spec.InternalTrafficPolicy; p != nil {
		switch *p {
		case corev1.ServiceInternalTrafficPolicyLocal:
			internal = true
		case corev1.ServiceInternalTrafficPolicyCluster, "":
		default:
			r.add("spec.internalTrafficPolicy", "%q is unknown: Cluster is assumed", *p)
		}
	}
	switch spec.ExternalTrafficPolicy {
	case corev1.ServiceExternalTrafficPolicyLocal:
		external = kind == corev1.ServiceTypeNodePort || kind == corev1.ServiceTypeLoadBalancer ||
			(kind == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0)
	case corev1.ServiceExternalTrafficPolicyCluster, "":
	default:
		r.add("spec.externalTrafficPolicy", "%q is unknown: Cluster is assumed", spec.ExternalTrafficPolicy)
	}
	return internal, external
}

func affinity(spec *corev1.ServiceSpec, r *report) time.Duration {
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone, "":
		return 0
	case corev1.ServiceAffinityClientIP:
	default:
		r.add("spec.sessionAffinity", "%q is unknown: None is assumed", spec.SessionAffinity)
		return 0
	}
	seconds := defaultAffinity
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	if seconds < 1 || seconds > maxAffinity {
		r.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not in 1..%d: %d is assumed",
			seconds, maxAffinity, defaultAffinity)
		seconds = defaultAffinity
	}
	return time.Duration(seconds) * time.Second
}

func healthCheckPort(spec *corev1.ServiceSpec, kind corev1.ServiceType, local bool, r *report) uint16 {
	n := spec.HealthCheckNodePort
	if n == 0 || kind != corev1.ServiceTypeLoadBalancer || !local {
		return 0 // the API server keeps the value after a change of type or policy
	}
	if err := checkPort(n); err != nil {
		r.add("spec.healthCheckNodePort", "%v", err)
		return 0
	}
	return uint16(n)
}

func trafficDistribution(spec *corev1.ServiceSpec, r *report) string {
	if spec.TrafficDistribution == nil {
		return ""
	}
	switch d := *spec.TrafficDistribution; d {
	case "":
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode:
		return strings.Clone(d)
	default:
		r.add("spec.trafficDistribution", "%q is unknown: ignored", d)
	}
	return ""
}
