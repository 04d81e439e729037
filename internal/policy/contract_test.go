package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Contract point 1: which Services, which families.
func TestWhichServices(t *testing.T) {
	runAll(t, []decision{
		{name: "dual stack", svc: model.Service{ClusterIPs: addrs("10.96.0.1", "fd00::1")},
			eps: []string{"10.1.0.1", "fd01::1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
				"ClusterIP [fd00::1]:80/TCP forward [fd01::1]:8080"}},
		{name: "addresses of a family it does not serve", svc: model.Service{
			ExternalIPs: addrs("fd00::9"), LoadBalancerIPs: addrs("fd00::8"), Ports: nodePort()},
			eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080 | masquerade"}},
		{name: "every kind", svc: model.Service{ExternalIPs: addrs("1.2.3.4"), LoadBalancerIPs: addrs("5.6.7.8"), Ports: nodePort()},
			eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
				"LoadBalancer 5.6.7.8:80/TCP forward 10.1.0.1:8080 | masquerade",
				"ExternalIP 1.2.3.4:80/TCP forward 10.1.0.1:8080 | masquerade",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080 | masquerade"}},
		{name: "an address named twice is guarded as a load balancer's", svc: model.Service{
			ExternalIPs: addrs("5.6.7.8"), LoadBalancerIPs: addrs("5.6.7.8"), SourceRanges: prefixes("9.0.0.0/8")},
			eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
				"LoadBalancer 5.6.7.8:80/TCP forward 10.1.0.1:8080 | masquerade | only [9.0.0.0/8]"}},
		{name: "a key another Service holds", svc: model.Service{ExternalIPs: addrs("1.2.3.4")}, eps: []string{"10.1.0.1"},
			own:  func(k model.FrontendKey) bool { return k.Addr.String() != "1.2.3.4" },
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080"}},
	})
}

// Contract point 2: which endpoints there are.
func TestEndpoints(t *testing.T) {
	runAll(t, []decision{
		{name: "sorted, whatever the slices' order", eps: []string{"10.1.0.3", "--", "10.1.0.1@n1", "10.1.0.2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* 10.1.0.2:8080 10.1.0.3:8080"}},
		{name: "the same endpoint in two slices", eps: []string{"10.1.0.1@n1", "--", "10.1.0.1@n1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080*"}},
		{name: "address reused: the pod that runs counts", eps: []string{"10.1.0.1 draining", "--", "10.1.0.1@n1", "10.1.0.2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* 10.1.0.2:8080"}},
		{name: "address reused: an unready pod beats an ending one", eps: []string{"10.1.0.1 draining", "--", "10.1.0.1 unready"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP reject | others 10.1.0.1:8080"}},
		{name: "address reused: of two ending ones the one that serves", eps: []string{"10.1.0.1 dying", "--", "10.1.0.1 draining"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080"}},
		{name: "publishNotReadyAddresses arrives as ready", svc: model.Service{},
			eps:  []string{"10.1.0.1 published", "10.1.0.2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 10.1.0.2:8080"}},
		{name: "an unknown node is not ours", eps: []string{"10.1.0.1@"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080"}},
		{name: "endpoints of the other family only", svc: model.Service{ClusterIPs: addrs("fd00::1")}, eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP [fd00::1]:80/TCP reject"}},
	})
}

// Contract point 3: terminating fallback, in each list for itself.
func TestTerminatingFallback(t *testing.T) {
	both := model.Service{InternalLocal: true, ExternalLocal: true, Ports: nodePort()}
	runAll(t, []decision{
		{name: "not while a ready one is left", eps: []string{"10.1.0.1", "10.1.0.2 draining", "10.1.0.3 dying", "10.1.0.4 unready"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | others 10.1.0.2:8080(serving) 10.1.0.3:8080 10.1.0.4:8080"}},
		{name: "cluster list", eps: []string{"10.1.0.1 draining", "10.1.0.2 dying"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | others 10.1.0.2:8080"}},
		{name: "local list only", svc: both, eps: []string{"10.1.0.1@n1 draining", "10.1.0.2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* | others 10.1.0.2:8080(serving)",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080 | outside forward 10.1.0.1:8080*"}},
		// A pod of this node that ends is in the local list only. Its flows by the ClusterIP may stay all the same.
		{name: "an ending one of this node, external policy Local", svc: model.Service{ExternalLocal: true, Ports: nodePort()},
			eps: []string{"10.1.0.1@n1 draining", "10.1.0.2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.2:8080 | others 10.1.0.1:8080(serving)",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080 | outside forward 10.1.0.1:8080*"}},
		{name: "both lists", svc: both, eps: []string{"10.1.0.1@n1 draining", "10.1.0.2@n2 draining"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* | others 10.1.0.2:8080(serving)",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080* 10.1.0.2:8080 | outside forward 10.1.0.1:8080*"}},
		{name: "local ready: no fallback there", svc: both, eps: []string{"10.1.0.1@n1 draining", "10.1.0.2@n1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.2:8080* | others 10.1.0.1:8080(serving)",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080* | outside forward 10.1.0.2:8080* | others 10.1.0.1:8080(serving)"}},
		{name: "unready ones never", eps: []string{"10.1.0.1 unready"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP reject | others 10.1.0.1:8080"}},
	})
}

// Contract points 4, 5 and 7: the policies and the verdict without endpoints.
func TestPolicies(t *testing.T) {
	external := model.Service{ExternalLocal: true, Ports: nodePort(), ExternalIPs: addrs("1.2.3.4")}
	runAll(t, []decision{
		{name: "internal Local", svc: model.Service{InternalLocal: true}, eps: []string{"10.1.0.1@n1", "10.1.0.2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* | others 10.1.0.2:8080(serving)"}},
		{name: "internal Local, none here: drop", svc: model.Service{InternalLocal: true}, eps: []string{"10.1.0.2@n2"},
			want:  []string{"ClusterIP 10.96.0.1:80/TCP drop | others 10.1.0.2:8080(serving)"},
			flags: "internal"},
		{name: "internal Local, none anywhere: reject", svc: model.Service{InternalLocal: true}, eps: []string{"10.1.0.2@n2 unready"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP reject | others 10.1.0.2:8080"}},
		{name: "internal Local leaves the external way alone", svc: model.Service{InternalLocal: true, Ports: nodePort()},
			eps: []string{"10.1.0.2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP drop | others 10.1.0.2:8080(serving)",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080 | masquerade"},
			flags: "internal"},
		{name: "external Local", svc: external, eps: []string{"10.1.0.1@n1", "10.1.0.2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* 10.1.0.2:8080",
				"ExternalIP 1.2.3.4:80/TCP forward 10.1.0.1:8080* 10.1.0.2:8080 | outside forward 10.1.0.1:8080*",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080* 10.1.0.2:8080 | outside forward 10.1.0.1:8080*"}},
		{name: "external Local, none here: pods may, others are dropped", svc: external, eps: []string{"10.1.0.2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.2:8080",
				"ExternalIP 1.2.3.4:80/TCP forward 10.1.0.2:8080 | outside drop",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080 | outside drop"},
			flags: "external"},
		{name: "external Local, none anywhere: reject for all", svc: external,
			want: []string{"ClusterIP 10.96.0.1:80/TCP reject", "ExternalIP 1.2.3.4:80/TCP reject", "NodePort *4:30080/TCP reject"}},
		{name: "no endpoints", svc: model.Service{Ports: nodePort(), LoadBalancerIPs: addrs("5.6.7.8")},
			want: []string{"ClusterIP 10.96.0.1:80/TCP reject", "LoadBalancer 5.6.7.8:80/TCP reject", "NodePort *4:30080/TCP reject"}},
		{name: "no local endpoint in one family only", svc: model.Service{InternalLocal: true, ClusterIPs: addrs("10.96.0.1", "fd00::1")},
			eps: []string{"10.1.0.1@n1", "fd01::2@n2"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080*",
				"ClusterIP [fd00::1]:80/TCP drop | others [fd01::2]:8080(serving)"},
			flags: "internal"},
	})
}

// Contract points 9 and 12, and what goes beyond: affinity, protocols, hashing, weights.
func TestPerPort(t *testing.T) {
	dns := []model.ServicePort{{Name: "udp", Protocol: model.UDP, Port: 53, NodePort: 30053},
		{Name: "tcp", Protocol: model.TCP, Port: 53, NodePort: 30053}, {Name: "sctp", Protocol: model.SCTP, Port: 53}}
	weights := func(w string) model.Service { return model.Service{Extras: model.Extras{Weights: w}} }
	eps := []string{"10.1.0.1 host:web-0", "10.1.0.2", "10.1.0.3"}
	runAll(t, []decision{
		{name: "affinity", svc: model.Service{AffinityTimeout: time.Hour, Ports: nodePort()}, eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | affinity 1h0m0s",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080 | masquerade | affinity 1h0m0s"}},
		{name: "one number, three protocols", svc: model.Service{Ports: dns}, eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:53/UDP forward 10.1.0.1:8053",
				"NodePort *4:30053/UDP forward 10.1.0.1:8053 | masquerade",
				"ClusterIP 10.96.0.1:53/TCP forward 10.1.0.1:8053",
				"NodePort *4:30053/TCP forward 10.1.0.1:8053 | masquerade",
				"ClusterIP 10.96.0.1:53/SCTP forward 10.1.0.1:8053"}},
		{name: "a scheduler of IPVS", svc: model.Service{Extras: model.Extras{IPVSScheduler: "wlc"}}, eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | scheduler wlc"}},
		{name: "consistent hash", svc: model.Service{Extras: model.Extras{ConsistentHash: true}}, eps: []string{"10.1.0.1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | hash"}},
		{name: "weights by address and host name", svc: weights("web-0=3, 10.1.0.2=0"), eps: eps,
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080x3 10.1.0.3:8080 | others 10.1.0.2:8080(serving)"}},
		{name: "all weights 0: serving beats the wish", svc: weights("web-0=0,10.1.0.2=0,10.1.0.3=0"), eps: eps,
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080"}},
		{name: "nonsense weights", svc: weights("web-0=-1,10.1.0.2=70000,10.1.0.3=1001,=,x"), eps: eps,
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080"}},
	})
}

// Contract point 11: what the health check node port answers.
func TestHealthCheck(t *testing.T) {
	lb := model.Service{ExternalLocal: true, HealthCheckNodePort: 32000, LoadBalancerIPs: addrs("5.6.7.8"),
		ClusterIPs: addrs("10.96.0.1", "fd00::1"),
		Ports:      []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 80}, {Name: "b", Protocol: model.TCP, Port: 81}}}
	off := lb
	off.ExternalLocal = false
	count := func(d decision) {
		t.Run(d.name, func(t *testing.T) {
			svc := service(d.svc)
			if got := health(frontends(&svc, d.eps).Health); got != d.health {
				t.Errorf("got %q, want %q", got, d.health)
			}
		})
	}
	count(decision{name: "two ports of one pod are one", svc: lb, eps: []string{"10.1.0.1@n1", "10.1.0.2@n2"}, health: "32000:1"})
	count(decision{name: "twice in slices", svc: lb, eps: []string{"10.1.0.1@n1", "--", "10.1.0.1@n1"}, health: "32000:1"})
	count(decision{name: "terminating and unready ones do not count", svc: lb,
		eps: []string{"10.1.0.1@n1 draining", "10.1.0.2@n1 dying", "10.1.0.3@n1 unready"}, health: "32000:0"})
	count(decision{name: "a pod of two families is one", svc: lb,
		eps: []string{"10.1.0.1@n1", "10.1.0.2@n1", "fd01::1@n1", "fd01::2@n1"}, health: "32000:2"})
	count(decision{name: "not under policy Cluster", svc: off, eps: []string{"10.1.0.1@n1"}, health: ""})
}

// More endpoints than a data plane has places for: the first by address are used,
// and the owner is told. Those left out still exist: their flows are not ended.
func TestTooManyEndpoints(t *testing.T) {
	const extra = 3
	svc, sl := benchInputs(1, policy.MaxBackends+extra)
	res := policy.Frontends(policy.Inputs{Service: &svc, Slices: sl, Node: policy.Self{Name: "n1"}})
	if n := len(res.Frontends[0].Backends); n != policy.MaxBackends {
		t.Errorf("%d backends", n)
	}
	if n := len(res.Frontends[0].Others); n != extra {
		t.Errorf("%d others", n)
	}
	want := "Service bench/svc-1: spec.ports[0]: 3 IPv4 endpoints are left out: a Service port can have 65536"
	if len(res.Problems) != 1 || res.Problems[0].String() != want {
		t.Errorf("problems %v", res.Problems)
	}
	if res := policy.Frontends(policy.Inputs{Service: &svc, Slices: sl[:len(sl)-1], Node: policy.Self{Name: "n1"}}); res.Problems != nil {
		t.Errorf("problems %v of few enough endpoints", res.Problems)
	}
}

// Two entries of spec.ports with one number: the first has it, also among many.
func TestPortsNamedTwice(t *testing.T) {
	svc := service(model.Service{Ports: []model.ServicePort{{Name: "a", Protocol: model.TCP, Port: 80, NodePort: 30080}}})
	for i := range 40 {
		svc.Ports = append(svc.Ports, model.ServicePort{Name: fmt.Sprint("p", i), Protocol: model.TCP, Port: uint16(100 + i)})
	}
	svc.Ports = append(svc.Ports,
		model.ServicePort{Name: "b", Protocol: model.TCP, Port: 80, NodePort: 30080}, model.ServicePort{Name: "c", Protocol: model.TCP, Port: 139},
		model.ServicePort{Name: "d", Protocol: model.UDP, Port: 80, NodePort: 30080})
	names := map[string]string{}
	res := policy.Frontends(policy.Inputs{Service: &svc})
	for i := range res.Frontends {
		f := &res.Frontends[i]
		if was, twice := names[f.Key.String()]; twice {
			t.Errorf("%s is there for %s and %s", f.Key, was, f.Port)
		}
		names[f.Key.String()] = f.Port
	}
	for k, port := range map[string]string{"10.96.0.1:80/TCP": "a", "*4:30080/TCP": "a", "10.96.0.1:139/TCP": "p39", "*4:30080/UDP": "d"} {
		if names[k] != port {
			t.Errorf("%s is of port %q, want %q", k, names[k], port)
		}
	}
}

// Many endpoints are sorted in another way than few: the result is the same.
func TestManyEndpointsAreSorted(t *testing.T) {
	for _, fam := range []model.Family{model.IPv4, model.IPv6} {
		svc := service(model.Service{ClusterIPs: addrs("10.96.0.1", "fd00::1")})
		r := rand.New(rand.NewPCG(3, uint64(fam)))
		var list []*model.Slice
		for i := range 8 { // of two ports, with addresses that occur twice
			sl := &model.Slice{Key: model.SliceKey{Name: fmt.Sprint(i)}, Family: fam, Ports: []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: uint16(8000 + i%2)}}}
			for range 60 {
				a := [16]byte{0: 0xfd, 7: byte(r.IntN(3)), 8: byte(r.IntN(2)), 15: byte(r.IntN(200)), 14: byte(r.IntN(2))}
				e := model.Endpoint{Addr: netip.AddrFrom16(a), Ready: r.IntN(2) == 0, Terminating: r.IntN(2) == 0, Serving: r.IntN(2) == 0}
				if fam == model.IPv4 {
					e.Addr = netip.AddrFrom4([4]byte{10, a[8], a[14], a[15]})
				}
				sl.Endpoints = append(sl.Endpoints, e)
			}
			list = append(list, sl)
		}
		in := policy.Inputs{Service: &svc, Slices: list}
		var got []netip.AddrPort
		state := map[netip.AddrPort]bool{} // serving: the best of each address
		for _, f := range policy.Frontends(in).Frontends {
			if f.Key.Family != fam {
				continue
			}
			for _, b := range f.Backends {
				got = append(got, b.AddrPort())
			}
			if !slices.IsSortedFunc(f.Others, func(a, b model.Other) int { return a.Addr.Compare(b.Addr) }) {
				t.Error("others are not sorted")
			}
		}
		if !slices.IsSortedFunc(got, netip.AddrPort.Compare) || len(slices.Compact(slices.Clone(got))) != len(got) || len(got) < 100 {
			t.Errorf("%s: %d backends, not sorted or not unique", fam, len(got))
		}
		for _, sl := range list {
			for _, e := range sl.Endpoints {
				k := netip.AddrPortFrom(e.Addr, sl.Ports[0].Port)
				state[k] = state[k] || e.Ready && !e.Terminating
			}
		}
		for k, ready := range state { // an entry that is not terminating and ready wins over its doubles
			if _, in := slices.BinarySearchFunc(got, k, netip.AddrPort.Compare); ready && !in {
				t.Errorf("%s is ready and missing", k)
			}
		}
	}
}
