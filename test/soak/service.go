package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// endpoint is one pod of a Service.
type endpoint struct {
	pod   *netlab.Host
	state string // "ready", "unready" or "ending" (serves while it terminates)
}

// service is one Service with its EndpointSlices, as one manifest file.
type service struct {
	index     int
	steady    bool
	dual      bool
	proto     string // TCP or UDP
	kind      string // spec.type
	exists    bool
	inLocal   bool
	outLocal  bool
	affinity  int // seconds; 0 = none
	ranges    []string
	weights   bool
	hash      bool
	endpoints []endpoint // of a steady one the first is the anchor
	removed   []removal  // of a steady one: endpoints that were removed, and when
}

// removal is an endpoint that must not get new connections any more.
type removal struct {
	pod string
	at  time.Time
}

func newService(i int, r *rand.Rand, pods []*netlab.Host) *service {
	s := &service{index: i, steady: i < steadyServices, dual: i%4 == 0, proto: "TCP", kind: "ClusterIP", exists: true}
	if i%5 == 0 {
		s.proto = "UDP"
	}
	switch way := i % 3; {
	case way == 1:
		s.kind = "NodePort"
	case way == 2:
		s.kind = "LoadBalancer"
	}
	if s.steady {
		s.endpoints = []endpoint{{pod: local(pods)[r.IntN(len(local(pods)))], state: "ready"}}
	}
	s.hash = s.mayHash() && r.IntN(2) == 0 // the share of the long run, because memory would otherwise grow with their number
	s.fill(r, pods)
	return s
}

// mayHash reports whether a Service has consistent hash at times. Its tables are 2 048 elements for each of its addresses, so no node has
// many of them: here 70 or so at a time, of every kind.
func (s *service) mayHash() bool { return s.index%13 == 3 }

// local returns the pods of the node under test, which every policy allows.
func local(pods []*netlab.Host) []*netlab.Host {
	return slices.DeleteFunc(slices.Clone(pods), func(h *netlab.Host) bool { return h.Node != "node-a" })
}

// fill selects new random endpoints, except for the anchor.
func (s *service) fill(r *rand.Rand, pods []*netlab.Host) {
	keep := 0
	if s.steady {
		keep = 1
	}
	before := s.endpoints
	s.endpoints = slices.Clone(s.endpoints[:min(keep, len(s.endpoints))])
	for _, i := range r.Perm(len(pods))[:r.IntN(6)] {
		if keep == 1 && pods[i] == s.endpoints[0].pod {
			continue
		}
		s.endpoints = append(s.endpoints, endpoint{pods[i], []string{"ready", "ready", "ready", "unready", "ending"}[r.IntN(5)]})
	}
	s.note(before)
}

// note records the endpoints that were removed from a steady Service.
func (s *service) note(before []endpoint) {
	if !s.steady {
		return
	}
	now := time.Now()
	for _, e := range before {
		if e.state == "ready" && !slices.ContainsFunc(s.endpoints, func(x endpoint) bool { return x.pod == e.pod && x.state == "ready" }) {
			s.removed = append(s.removed, removal{e.pod.Name, now})
		}
	}
	s.removed = slices.DeleteFunc(s.removed, func(x removal) bool { return now.Sub(x.at) > 5*time.Minute })
}

// entitled reports whether a pod may answer a request that began at start: it is in the list, or it was removed no longer before start than
// is allowed. ago is how long before start it was removed.
func (s *service) entitled(pod string, start time.Time, allowed func(time.Time) time.Duration) (ok bool, ago time.Duration) {
	if slices.ContainsFunc(s.endpoints, func(e endpoint) bool { return e.pod.Name == pod && e.state == "ready" }) {
		return true, 0
	}
	ago = time.Hour
	for _, x := range s.removed {
		if x.pod == pod {
			ago = min(ago, max(start.Sub(x.at), 0))
			ok = ok || start.Sub(x.at) <= allowed(x.at)
		}
	}
	return ok, ago
}

// leftSince reports whether the pod (any, if "") was removed after a time.
func (s *service) leftSince(pod string, after time.Time) bool {
	return slices.ContainsFunc(s.removed, func(x removal) bool { return (pod == "" || x.pod == pod) && x.at.After(after) })
}

// mutate changes one thing.
func (s *service) mutate(r *rand.Rand, pods []*netlab.Host) {
	if !s.exists {
		s.exists = true
		s.fill(r, pods)
		return
	}
	switch n := r.IntN(20); {
	case n < 10:
		s.fill(r, pods)
	case n < 12:
		s.affinity = []int{0, 1, 10, 10800}[r.IntN(4)]
	case n < 13:
		s.inLocal = !s.inLocal
	case n < 14:
		s.outLocal = !s.outLocal
	case n < 15:
		s.ranges = [][]string{nil, {"172.18.0.0/24", "fd00:172:18::/64"}, {"172.16.0.0/12", "fd00::/8", "9.0.0.0/8"}}[r.IntN(3)]
	case n < 16:
		s.weights = !s.weights
	case n < 17:
		s.hash = !s.hash && s.mayHash()
	case n < 18 && !(s.steady && s.index%3 != 0): // those that get requests from outside keep their type
		s.kind = []string{"ClusterIP", "NodePort", "LoadBalancer"}[r.IntN(3)]
	case !s.steady:
		s.exists = false
	default:
		s.fill(r, pods)
	}
}

func (s *service) file() string { return fmt.Sprintf("s%04d.yaml", s.index) }

// manifest returns the Service and its slices, one of each family.
func (s *service) manifest() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("apiVersion: v1\nkind: Service\nmetadata:\n  name: s%04d\n  namespace: soak\n  annotations:", s.index)
	p("    soak: \"true\"")
	if s.weights && len(s.endpoints) > 1 {
		p("    fairlead.dev/weights: \"%s=3\"", s.endpoints[1].pod.Addrs.V4)
	}
	if s.hash {
		p("    fairlead.dev/consistent-hash: client-ip")
	}
	p("spec:\n  type: %s\n  clusterIP: %s\n  clusterIPs: [%s]", s.kind, vip4(s.index), quoted(s.each(vip4, vip6)))
	p("  ipFamilies: [%s]\n  ipFamilyPolicy: PreferDualStack", strings.Join(s.families(), ", "))
	p("  internalTrafficPolicy: %s", policy(s.inLocal))
	if s.affinity > 0 {
		p("  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}", s.affinity)
	}
	if s.kind != "ClusterIP" {
		p("  externalTrafficPolicy: %s", policy(s.outLocal))
	}
	if s.kind == "LoadBalancer" && len(s.ranges) > 0 {
		p("  loadBalancerSourceRanges: [%s]", quoted(s.ranges))
	}
	p("  ports:\n  - {name: p, protocol: %s, port: 80, targetPort: 8080%s}", s.proto, s.nodePort())
	if s.kind == "LoadBalancer" {
		p("status: {loadBalancer: {ingress: [{ip: \"%s\"}]}}", strings.Join(s.each(lb4, lb6), "\"}, {ip: \""))
	}
	for _, family := range s.families() {
		s.slice(p, family)
	}
	return b.String()
}

func (s *service) slice(p func(string, ...any), family string) {
	p("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice")
	p("metadata: {name: s%04d-%s, namespace: soak, labels: {kubernetes.io/service-name: s%04d}}", s.index, strings.ToLower(family), s.index)
	p("addressType: %s\nports: [{name: p, protocol: %s, port: 8080}]\nendpoints:%s", family, s.proto, map[bool]string{true: " []"}[len(s.endpoints) == 0])
	for _, e := range s.endpoints {
		addr := e.pod.Addrs.V4
		if family == "IPv6" {
			addr = e.pod.Addrs.V6
		}
		conditions := map[string]string{"ready": "ready: true", "unready": "ready: false, serving: false",
			"ending": "ready: false, serving: true, terminating: true"}[e.state]
		p("- {addresses: [\"%s\"], nodeName: %s, conditions: {%s}}", addr, e.pod.Node, conditions)
	}
}
