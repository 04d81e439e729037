package policy_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
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
		{name: "publishNotReadyAddresses arrives as ready", svc: model.Service{PublishNotReady: true},
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
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080*",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080 | outside forward 10.1.0.1:8080*"}},
		{name: "both lists", svc: both, eps: []string{"10.1.0.1@n1 draining", "10.1.0.2@n2 draining"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080*",
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
			want: []string{"ClusterIP 10.96.0.1:80/TCP drop",
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
