package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

func ranged(value string, s model.Service) model.Service {
	s.Extras.PortRange = value
	return s
}

// fairlead.dev/port-range (#23864).
func TestPortRanges(t *testing.T) {
	own := "ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080"
	sip := []model.ServicePort{{Name: "sip", Protocol: model.UDP, Port: 5060}, {Name: "rtp", Protocol: model.UDP, Port: 5004},
		{Name: "web", Protocol: model.TCP, Port: 80}}
	runAll(t, []decision{
		{name: "besides the port itself", svc: ranged("8000-8999", model.Service{}), eps: []string{"10.1.0.1"},
			want: []string{own, "ClusterIP 10.96.0.1:8000-8999/TCP forward 10.1.0.1:0"}},
		{name: "beginning at the port itself", svc: ranged("80-80", model.Service{}), eps: []string{"10.1.0.1"},
			want: []string{own, "ClusterIP 10.96.0.1:80-80/TCP forward 10.1.0.1:0"}},
		{name: "no endpoints", svc: ranged("1-65535", model.Service{}),
			want: []string{"ClusterIP 10.96.0.1:80/TCP reject", "ClusterIP 10.96.0.1:1-65535/TCP reject"}},
		{name: "not on NodePorts, guarded on load balancer IPs",
			svc: ranged("90-99", model.Service{Ports: nodePort(), LoadBalancerIPs: addrs("1.1.1.1"), SourceRanges: prefixes("9.0.0.0/8")}),
			eps: []string{"10.1.0.1"},
			want: []string{own, "ClusterIP 10.96.0.1:90-99/TCP forward 10.1.0.1:0",
				"LoadBalancer 1.1.1.1:80/TCP forward 10.1.0.1:8080 | masquerade | only [9.0.0.0/8]",
				"LoadBalancer 1.1.1.1:90-99/TCP forward 10.1.0.1:0 | masquerade | only [9.0.0.0/8]",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080 | masquerade"}},
		{name: "endpoints that get nothing have no port either",
			svc: ranged("90-99", model.Service{}), eps: []string{"10.1.0.1", "10.1.0.2 unready"},
			want: []string{own + " | others 10.1.0.2:8080", "ClusterIP 10.96.0.1:90-99/TCP forward 10.1.0.1:0 | others 10.1.0.2:0"}},
		{name: "by name", svc: ranged("rtp=10000-10999", model.Service{Ports: sip}),
			want: []string{"ClusterIP 10.96.0.1:5060/UDP reject", "ClusterIP 10.96.0.1:5004/UDP reject",
				"ClusterIP 10.96.0.1:10000-10999/UDP reject", "ClusterIP 10.96.0.1:80/TCP reject"}},
		{name: "without a name: the first port of each protocol", svc: ranged("10000-10999", model.Service{Ports: sip}),
			want: []string{"ClusterIP 10.96.0.1:5060/UDP reject", "ClusterIP 10.96.0.1:10000-10999/UDP reject",
				"ClusterIP 10.96.0.1:5004/UDP reject", "ClusterIP 10.96.0.1:80/TCP reject", "ClusterIP 10.96.0.1:10000-10999/TCP reject"}},
		{name: "affinity becomes a hash of the client", svc: ranged("90-99", model.Service{AffinityTimeout: time.Minute}), eps: []string{"10.1.0.1"},
			want: []string{own + " | affinity 1m0s", "ClusterIP 10.96.0.1:90-99/TCP forward 10.1.0.1:0 | hash"}},
		{name: "consistent hash without affinity", svc: ranged("90-99", model.Service{Extras: model.Extras{ConsistentHash: true}}), eps: []string{"10.1.0.1"},
			want: []string{own + " | hash", "ClusterIP 10.96.0.1:90-99/TCP forward 10.1.0.1:0 | hash"}},
	})
}

// What cannot be is said, and the rest is served.
func TestPortRangeProblems(t *testing.T) {
	field := "Service default/web: metadata.annotations[fairlead.dev/port-range]: "
	for _, c := range []struct {
		value string
		svc   model.Service
		want  string
	}{
		{"http=90-99,http=100-199", model.Service{}, "http=100-199: TCP already has a range: an address can have one range for each protocol"},
		{"other=90-99", model.Service{}, "other=90-99: spec.ports has no port of that name"},
		{"90-99", model.Service{AffinityTimeout: 1}, "session affinity with a timeout does not support port ranges: clients are distributed by a hash of their address"},
	} {
		svc := service(ranged(c.value, c.svc))
		res := policy.Frontends(policy.Inputs{Service: &svc})
		if len(res.Problems) != 1 || res.Problems[0].String() != field+c.want {
			t.Errorf("%s: problems %q, want %q", c.value, res.Problems, field+c.want)
		}
	}
}

// A range without a name is the first port's of its protocol, and no complaint of the
// others. Ten problems are told, and how many more there are.
func TestPortRangeProblemsAreCounted(t *testing.T) {
	ports := []model.ServicePort{{Name: "sip", Protocol: model.UDP, Port: 5060}, {Name: "rtp", Protocol: model.UDP, Port: 5004}}
	for _, c := range []struct {
		value string
		n     int
		last  string
	}{
		{"10000-10999", 0, ""},
		{strings.Repeat("x=1-2,", 9) + "x=1-2", 10, ""},
		{strings.Repeat("x=1-2,", 10) + "x=1-2", 11, "1 more problems of this annotation are not listed"},
		{strings.Repeat("x=1-2,", 30) + "x=1-2", 11, "21 more problems of this annotation are not listed"},
	} {
		svc := service(ranged(c.value, model.Service{Ports: ports}))
		got := policy.Frontends(policy.Inputs{Service: &svc}).Problems
		if len(got) != c.n || c.last != "" && !strings.HasSuffix(got[c.n-1].String(), c.last) {
			t.Errorf("%q: %d problems %q, want %d, the last of them %q", c.value, len(got), got, c.n, c.last)
		}
	}
}

// An address has one range for each protocol: the older Service's. It does not
// keep anybody from a port inside it, which is looked up first.
func TestPortRangeClaims(t *testing.T) {
	r := newRegistry()
	older, younger, single := external("s1", 100, "1.2.3.4"), external("s2", 200, "1.2.3.4"), external("s3", 300, "1.2.3.4")
	older.Ports = []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 81}}
	younger.Ports = []model.ServicePort{{Name: "b", Protocol: model.TCP, Port: 82}}
	single.Ports = []model.ServicePort{{Name: "c", Protocol: model.TCP, Port: 8080}}
	r.put(ranged("8500-9000", younger))
	r.put(single)
	expect(t, "affected by an older one", r.put(ranged("8000-8999", older)), "s2")
	at := func(first, last uint16) model.FrontendKey {
		k := shared
		k.Port, k.LastPort = first, last
		return k
	}
	expect(t, "holder of the older range", r.holder(at(8000, 8999)), "s1")
	expect(t, "holder of a port inside", r.holder(at(8080, 0)), "s3")
	lost := r.claims.Lost(r.now[named("s2")])
	want := "Service default/s2: spec.externalIPs: no port of 1.2.3.4:8500-9000/TCP is served for it: " +
		"the only range of this address and protocol is already taken by Service default/s1"
	if len(lost) != 1 || lost[0].String() != want {
		t.Errorf("problems %q, want %q", lost, want)
	}
	expect(t, "affected by the end of the range", r.put(older), "s2")
	expect(t, "holder of the younger range", r.holder(at(8500, 9000)), "s2")
}

// While a target port changes, a pod is listed with the old one and the new one: in a
// range it is one endpoint.
func TestPortRangeCountsAddresses(t *testing.T) {
	svc := service(ranged("8000-8999", model.Service{}))
	slices := sliceSet(svc.Key, svc.Ports, []string{"10.1.0.1", "10.1.0.2", "--", "10.1.0.1"})
	slices[1].Ports[0].Port = 9090
	res := policy.Frontends(policy.Inputs{Service: &svc, Slices: slices})
	if n, wide := len(res.Frontends[0].Backends), len(res.Frontends[1].Backends); n != 3 || wide != 2 {
		t.Errorf("%d backends of the port, %d of the range; want 3 and 2", n, wide)
	}
}
