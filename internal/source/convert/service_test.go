package convert

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/model"
)

func lines(problems []model.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func ranges(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// goodService is what a case starts from: nothing is wrong with it.
func goodService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
}

func ptr[T any](v T) *T { return &v }

// serviceCase is one change to the good Service, the one line it must cost, and
// what must be left of the Service.
type serviceCase struct {
	name   string
	change func(*corev1.Service)
	want   []string // without "Service default/web: "
	check  func(*model.Service) any
	left   any
}

func run(t *testing.T, cases []serviceCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := goodService()
			c.change(o)
			s, problems := New().Service(o)
			var want []string
			for _, w := range c.want {
				want = append(want, "Service default/web: "+w)
			}
			if got := lines(problems); !slices.Equal(got, want) {
				t.Errorf("problems\n got %q\nwant %q", got, want)
			}
			if got := c.check(s); !reflect.DeepEqual(got, c.left) {
				t.Errorf("left\n got %v\nwant %v", got, c.left)
			}
		})
	}
}

func clusterIPsOf(s *model.Service) any { return s.ClusterIPs }
func portsOf(s *model.Service) any      { return s.Ports }

func TestServiceAddresses(t *testing.T) {
	run(t, []serviceCase{
		{"nothing wrong", func(*corev1.Service) {}, nil, clusterIPsOf, addrs("10.96.0.1")},
		{"dual stack", func(o *corev1.Service) { o.Spec.ClusterIPs = []string{"10.96.0.1", "fd00::1"} },
			nil, clusterIPsOf, addrs("10.96.0.1", "fd00::1")},
		{"clusterIP alone", func(o *corev1.Service) { o.Spec.ClusterIPs = nil }, nil, clusterIPsOf, addrs("10.96.0.1")},
		{"clusterIP missing", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil },
			[]string{"spec.clusterIP: missing: without an API server none is assigned; write the address"},
			clusterIPsOf, []netip.Addr(nil)},
		{"bad first, good second", func(o *corev1.Service) {
			o.Spec.ClusterIP, o.Spec.ClusterIPs = "10.96.0.256", []string{"10.96.0.256", "fd00::1"}
		}, []string{`spec.clusterIPs[0]: "10.96.0.256" is not an IP address`}, clusterIPsOf, addrs("fd00::1")},
		{"bad clusterIP alone", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "ten", nil },
			[]string{`spec.clusterIP: "ten" is not an IP address`}, clusterIPsOf, []netip.Addr(nil)},
		{"clusterIP is not the first", func(o *corev1.Service) { o.Spec.ClusterIP = "10.96.0.9" },
			[]string{`spec.clusterIP: "10.96.0.9" is not the first of spec.clusterIPs, which is used`},
			clusterIPsOf, addrs("10.96.0.1")},
		{"two of one family", func(o *corev1.Service) { o.Spec.ClusterIPs = []string{"10.96.0.1", "10.96.0.2"} },
			[]string{"spec.clusterIPs[1]: 10.96.0.2 is the second IPv4 address: only the first is used"},
			clusterIPsOf, addrs("10.96.0.1")},
		{"leading zeros are decimal", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "010.096.0.01", nil },
			nil, clusterIPsOf, addrs("10.96.0.1")},
		{"mapped address is IPv4", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "::ffff:10.96.0.1", nil },
			nil, clusterIPsOf, addrs("10.96.0.1")},
		{"zone", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "fe80::1%eth0", nil },
			[]string{`spec.clusterIP: "fe80::1%eth0" has a zone, which is not allowed in an address of a cluster`},
			clusterIPsOf, []netip.Addr(nil)},
		{"loopback", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "127.0.0.1", nil },
			[]string{"spec.clusterIP: 127.0.0.1 is a loopback address"}, clusterIPsOf, []netip.Addr(nil)},
		{"external IPs", func(o *corev1.Service) {
			o.Spec.ExternalIPs = []string{"203.0.113.7", "nonsense", "0.0.0.0", "203.0.113.7", "2001:db8::7"}
		}, []string{
			`spec.externalIPs[1]: "nonsense" is not an IP address`,
			"spec.externalIPs[2]: 0.0.0.0 is the unspecified address",
			"spec.externalIPs[3]: 203.0.113.7 is listed twice",
		}, func(s *model.Service) any { return s.ExternalIPs },
			[]netip.Addr{addrs("203.0.113.7")[0], {}, {}, {}, addrs("2001:db8::7")[0]}},
		{"load balancer", func(o *corev1.Service) {
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
				{IP: "192.0.2.1"}, {Hostname: "lb.example"}, {IP: "x"}, {IP: "192.0.2.2", IPMode: ptr(corev1.LoadBalancerIPModeProxy)},
				{IP: "192.0.2.3", IPMode: ptr(corev1.LoadBalancerIPModeVIP)}, {IP: "192.0.2.4", IPMode: ptr(corev1.LoadBalancerIPMode("DSR"))},
			}
		}, []string{
			`status.loadBalancer.ingress[2].ip: "x" is not an IP address`,
			`status.loadBalancer.ingress[5].ipMode: "DSR" is unknown: the address is not used`,
		}, func(s *model.Service) any { return s.LoadBalancerIPs }, addrs("192.0.2.1", "192.0.2.3")},
	})
}

func TestServicePorts(t *testing.T) {
	set := func(ports ...corev1.ServicePort) func(*corev1.Service) {
		return func(o *corev1.Service) { o.Spec.Ports = ports }
	}
	node := func(ports ...corev1.ServicePort) func(*corev1.Service) {
		return func(o *corev1.Service) { o.Spec.Type, o.Spec.Ports = corev1.ServiceTypeNodePort, ports }
	}
	tcp80 := model.ServicePort{Protocol: model.TCP, Port: 80}
	run(t, []serviceCase{
		{"protocol defaults to TCP", func(*corev1.Service) {}, nil, portsOf, []model.ServicePort{tcp80}},
		{"port 0", set(corev1.ServicePort{Name: "a"}, corev1.ServicePort{Port: 80}),
			[]string{"spec.ports[0].port: 0 is not a port"}, portsOf, []model.ServicePort{tcp80}},
		{"port too high", set(corev1.ServicePort{Port: 65536}),
			[]string{"spec.ports[0].port: 65536 is not a port: it must be in 1..65535"}, portsOf, []model.ServicePort(nil)},
		{"unknown protocol", set(corev1.ServicePort{Port: 80}, corev1.ServicePort{Name: "b", Port: 80, Protocol: "ICMP"}),
			[]string{`spec.ports[1].protocol: "ICMP" is none of TCP, UDP, SCTP: the port is not used`},
			portsOf, []model.ServicePort{tcp80}},
		{"one number, two protocols", set(corev1.ServicePort{Port: 80}, corev1.ServicePort{Name: "u", Port: 80, Protocol: "UDP"}),
			nil, portsOf, []model.ServicePort{tcp80, {Name: "u", Protocol: model.UDP, Port: 80}}},
		{"a name that is none", set(corev1.ServicePort{Port: 80}, corev1.ServicePort{Name: "A_b", Port: 81}),
			[]string{`spec.ports[1].name: "A_b" is not a DNS label (lower case letters, digits and '-', at most 63 characters): the port is not used`},
			portsOf, []model.ServicePort{tcp80}},
		{"one name twice", set(corev1.ServicePort{Port: 80}, corev1.ServicePort{Port: 81}),
			[]string{"spec.ports[1].name: the same as that of an earlier port of this Service: the port is not used"},
			portsOf, []model.ServicePort{tcp80}},
		{"one port twice", set(corev1.ServicePort{Port: 80}, corev1.ServicePort{Name: "b", Port: 80}),
			[]string{"spec.ports[1].port: the same as that of an earlier port of this Service: the port is not used"},
			portsOf, []model.ServicePort{tcp80}},
		{"node port missing", node(corev1.ServicePort{Port: 80}),
			[]string{"spec.ports[0].nodePort: missing: without an API server none is assigned; write the number"},
			portsOf, []model.ServicePort{tcp80}},
		{"node port bad", node(corev1.ServicePort{Port: 80, NodePort: -1}),
			[]string{"spec.ports[0].nodePort: -1 is not a port: it must be in 1..65535"}, portsOf, []model.ServicePort{tcp80}},
		{"node port twice", node(corev1.ServicePort{Port: 80, NodePort: 30000}, corev1.ServicePort{Name: "b", Port: 81, NodePort: 30000}),
			[]string{"spec.ports[1].nodePort: 30000/TCP is taken by an earlier port of this Service"}, portsOf,
			[]model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30000}, {Name: "b", Protocol: model.TCP, Port: 81}}},
		{"node port of a ClusterIP Service", set(corev1.ServicePort{Port: 80, NodePort: 30000}),
			[]string{"spec.ports[0].nodePort: a Service of type ClusterIP has no node ports: ignored"},
			portsOf, []model.ServicePort{tcp80}},
	})
}

func TestServiceTraffic(t *testing.T) {
	affinity := func(s *model.Service) any { return s.AffinityTimeout }
	local := func(s *model.Service) any { return [2]bool{s.InternalLocal, s.ExternalLocal} }
	clientIP := func(seconds *int32) func(*corev1.Service) {
		return func(o *corev1.Service) {
			o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: seconds}}
		}
	}
	etp := func(kind corev1.ServiceType, p corev1.ServiceExternalTrafficPolicy) func(*corev1.Service) {
		return func(o *corev1.Service) { o.Spec.Type, o.Spec.ExternalTrafficPolicy = kind, p }
	}
	run(t, []serviceCase{
		{"affinity default", clientIP(nil), nil, affinity, 3 * time.Hour},
		{"affinity", clientIP(ptr(int32(60))), nil, affinity, time.Minute},
		{"affinity too long", clientIP(ptr(int32(86401))),
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not in 1..86400: 10800 is assumed"},
			affinity, 3 * time.Hour},
		{"affinity unknown", func(o *corev1.Service) { o.Spec.SessionAffinity = "Cookie" },
			[]string{`spec.sessionAffinity: "Cookie" is unknown: None is assumed`}, affinity, time.Duration(0)},
		{"internal local", func(o *corev1.Service) { o.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal) },
			nil, local, [2]bool{true, false}},
		{"internal unknown", func(o *corev1.Service) {
			o.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicy("Zone"))
		}, []string{`spec.internalTrafficPolicy: "Zone" is unknown: Cluster is assumed`}, local, [2]bool{}},
		{"external local", etp(corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal), nil, local, [2]bool{false, true}},
		{"external local means nothing inside", etp("", corev1.ServiceExternalTrafficPolicyLocal), nil, local, [2]bool{}},
		{"external unknown", etp(corev1.ServiceTypeLoadBalancer, "Node"),
			[]string{`spec.externalTrafficPolicy: "Node" is unknown: Cluster is assumed`}, local, [2]bool{}},
		{"type unknown", func(o *corev1.Service) { o.Spec.Type = "Balancer" },
			[]string{`spec.type: "Balancer" is unknown: ClusterIP is assumed`}, func(s *model.Service) any { return s.Proxied }, true},
		{"distribution unknown", func(o *corev1.Service) { o.Spec.TrafficDistribution = ptr("PreferMoon") },
			[]string{`spec.trafficDistribution: "PreferMoon" is unknown: ignored`},
			func(s *model.Service) any { return s.TrafficDistribution }, ""},
		{"source ranges: spaces, bad, mapped, masked", func(o *corev1.Service) {
			o.Spec.LoadBalancerSourceRanges = []string{" 10.1.2.3/8 ", "10.0.0.0/33", "::ffff:192.0.2.0/120", "fd00::/64"}
		}, []string{`spec.loadBalancerSourceRanges[1]: "10.0.0.0/33" is not a CIDR`},
			func(s *model.Service) any { return s.SourceRanges }, ranges("10.0.0.0/8", "192.0.2.0/24", "fd00::/64")},
		{"no source range can be read: nobody", func(o *corev1.Service) { o.Spec.LoadBalancerSourceRanges = []string{"all"} },
			[]string{`spec.loadBalancerSourceRanges[0]: "all" is not a CIDR`,
				"spec.loadBalancerSourceRanges: no entry is valid: no client is admitted"},
			func(s *model.Service) any { return s.SourceRanges }, ranges("0.0.0.0/32", "::/128")},
		{"health check port", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
			o.Spec.HealthCheckNodePort = 70000
		}, []string{"spec.healthCheckNodePort: 70000 is not a port: it must be in 1..65535"},
			func(s *model.Service) any { return s.HealthCheckNodePort }, uint16(0)},
		{"health check port that stands after LoadBalancer became NodePort", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
			o.Spec.HealthCheckNodePort, o.Spec.Ports[0].NodePort = 30100, 30080
		}, nil, func(s *model.Service) any { return s.HealthCheckNodePort }, uint16(0)},
		{"health check port that stands after Local became Cluster", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyCluster
			o.Spec.HealthCheckNodePort = 30100
		}, nil, func(s *model.Service) any { return s.HealthCheckNodePort }, uint16(0)},
		{"health check port in use", func(o *corev1.Service) {
			o.Spec.Type, o.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
			o.Spec.HealthCheckNodePort = 30100
		}, nil, func(s *model.Service) any { return s.HealthCheckNodePort }, uint16(30100)},
	})
}

func TestServiceKinds(t *testing.T) {
	kinds := func(s *model.Service) any { return [3]any{s.Proxied, s.Headless, s.ExternalName} }
	run(t, []serviceCase{
		{"headless", func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "None", []string{"None"} },
			nil, kinds, [3]any{false, true, ""}},
		{"external name", func(o *corev1.Service) {
			o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example."}
		}, nil, kinds, [3]any{false, false, "db.example"}},
		{"external name missing", func(o *corev1.Service) { o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName} },
			[]string{"spec.externalName: missing"}, kinds, [3]any{false, false, ""}},
		{"another proxy's", func(o *corev1.Service) { o.Labels = map[string]string{ProxyNameLabel: ""} },
			nil, kinds, [3]any{false, false, ""}},
	})
}

func TestServiceAnnotations(t *testing.T) {
	annotate := func(key, value string) func(*corev1.Service) {
		return func(o *corev1.Service) { o.Annotations = map[string]string{key: value, "example.com/other": "x"} }
	}
	got := func(s *model.Service) any { return s.Extras }
	f := func(key, complaint string) []string {
		return []string{"metadata.annotations[fairlead.dev/" + key + "]: " + complaint}
	}
	run(t, []serviceCase{
		{"weights", annotate("fairlead.dev/weights", "10.0.0.1=3, web-0=0"), nil, got, model.Extras{Weights: "10.0.0.1=3,web-0=0"}},
		{"weights partly bad", annotate("fairlead.dev/weights", "10.0.0.1=3,web-0=1001"),
			f("weights", `"web-0=1001": the weight must be a number in 0..1000`), got, model.Extras{Weights: "10.0.0.1=3"}},
		{"weights without weight", annotate("fairlead.dev/weights", "10.0.0.1"),
			f("weights", `"10.0.0.1": must read address=weight or hostname=weight`), got, model.Extras{}},
		{"hash", annotate("fairlead.dev/consistent-hash", "client-ip"), nil, got, model.Extras{ConsistentHash: true}},
		{"hash unknown", annotate("fairlead.dev/consistent-hash", "true"),
			f("consistent-hash", `"true" is unknown: the only value is client-ip`), got, model.Extras{}},
		{"port range", annotate("fairlead.dev/port-range", "8000-8999,sip=5060-5080"), nil, got,
			model.Extras{PortRange: "8000-8999,sip=5060-5080"}},
		{"port range upside down", annotate("fairlead.dev/port-range", "9-8"),
			f("port-range", `"9-8": the first port is above the last`), got, model.Extras{}},
		{"port range of one", annotate("fairlead.dev/port-range", "0-8"),
			f("port-range", `"0-8": must read first-last, or portname=first-last, with ports in 1..65535`), got, model.Extras{}},
		{"node port ranges", annotate("fairlead.dev/nodeport-source-ranges", "10.0.0.0/8, x"),
			[]string{`metadata.annotations[fairlead.dev/nodeport-source-ranges][1]: "x" is not a CIDR`}, got, model.Extras{NodePortRanges: ranges("10.0.0.0/8")}},
		{"scheduler", annotate("fairlead.dev/ipvs-scheduler", "wlc"), nil, got, model.Extras{IPVSScheduler: "wlc"}},
		{"no scheduler", annotate("fairlead.dev/ipvs-scheduler", "wlc;x"),
			f("ipvs-scheduler", `"wlc;x" is not the name of an IPVS scheduler: names have up to 15 lower case letters`), got, model.Extras{}},
		{"park", annotate("fairlead.dev/dns-park", "1500ms"), nil, got, model.Extras{DNSPark: ptr(1500 * time.Millisecond)}},
		{"park off", annotate("fairlead.dev/dns-park", "0"), nil, got, model.Extras{DNSPark: ptr(time.Duration(0))}},
		{"park too long", annotate("fairlead.dev/dns-park", "5s"),
			f("dns-park", `"5s" is not a duration in 0..4s`), got, model.Extras{}},
		{"accelerate, which never had an effect", annotate("fairlead.dev/accelerate", "20"),
			f("accelerate", "unknown annotation: ignored"), got, model.Extras{}},
		{"offload off", annotate("fairlead.dev/offload", "off"), nil, got, model.Extras{Offload: -1}},
		{"offload sooner", annotate("fairlead.dev/offload", " 4 "), nil, got, model.Extras{Offload: 4}},
		{"offload at once", annotate("fairlead.dev/offload", "0"),
			f("offload", `"0" is neither off nor a number of packets from 1 on`), got, model.Extras{}},
		{"offload of too much", annotate("fairlead.dev/offload", "99999999999"),
			f("offload", `"99999999999" is neither off nor a number of packets from 1 on`), got, model.Extras{}},
		{"proxy protocol", annotate("fairlead.dev/proxy-protocol", "v2"), nil, got, model.Extras{Relay: model.Relaying{ProxyProtocol: true}}},
		{"source address", annotate("fairlead.dev/source-address", "client"), nil, got, model.Extras{Relay: model.Relaying{KeepSource: true}}},
		{"proxy protocol of old", annotate("fairlead.dev/proxy-protocol", "v1"),
			f("proxy-protocol", `"v1" is unknown: the only value is v2`), got, model.Extras{}},
		{"grace", annotate("fairlead.dev/endpoint-grace", "30s"), nil, got, model.Extras{Relay: model.Relaying{EndpointGrace: 30 * time.Second}}},
		{"no end", annotate("fairlead.dev/endpoint-grace", "never"), nil, got, model.Extras{Relay: model.Relaying{EndpointGrace: -1}}},
		{"grace of nothing", annotate("fairlead.dev/endpoint-grace", "0"),
			f("endpoint-grace", `"0" is neither never nor a duration in 1s..24h0m0s`), got, model.Extras{}},
		{"connections", annotate("fairlead.dev/max-connections", "500"), nil, got, model.Extras{Relay: model.Relaying{MaxConnections: 500}}},
		{"no connections", annotate("fairlead.dev/max-connections", "0"),
			f("max-connections", `"0" is not a number of connections from 1 on`), got, model.Extras{}},
		{"misspelt", annotate("fairlead.dev/wieghts", "1"), f("wieghts", "unknown annotation: ignored"), got, model.Extras{}},
	})
}

// One object with a thousand mistakes is a dozen lines, not a thousand.
func TestProblemsAreBounded(t *testing.T) {
	o := goodService()
	o.Spec.ExternalIPs = slices.Repeat([]string{"bad"}, 1000)
	_, problems := New().Service(o)
	got := lines(problems)
	if len(got) != maxProblems+1 || !strings.HasSuffix(got[maxProblems], "990 more problems of this object are not listed") {
		t.Errorf("%d lines, last %q", len(got), got[len(got)-1])
	}
}
