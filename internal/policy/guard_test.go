package policy_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Contract point 6: source ranges.
func TestSourceRanges(t *testing.T) {
	guarded := func(ranges ...string) model.Service {
		return model.Service{ExternalIPs: addrs("1.2.3.4"), LoadBalancerIPs: addrs("5.6.7.8"), Ports: nodePort(),
			SourceRanges: prefixes(ranges...), SourceGuarded: true}
	}
	want := func(only string) []string {
		return []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
			"LoadBalancer 5.6.7.8:80/TCP forward 10.1.0.1:8080 | masquerade" + only,
			"ExternalIP 1.2.3.4:80/TCP forward 10.1.0.1:8080 | masquerade",
			"NodePort *4:30080/TCP forward 10.1.0.1:8080 | masquerade"}
	}
	on := func(a string) policy.Self { return policy.Self{Name: "n1", Addrs: addrs(a)} }
	eps := []string{"10.1.0.1"}
	runAll(t, []decision{
		{name: "load balancer IPs only (#33586)", svc: guarded("9.0.0.0/8"), eps: eps, want: want(" | only [9.0.0.0/8]")},
		{name: "nested, unsorted, unmasked", svc: guarded("9.1.0.0/16", "8.8.8.8/32", "9.255.0.0/8"), eps: eps,
			want: want(" | only [8.8.8.8/32 9.0.0.0/8]")},
		{name: "/0 is no guard", svc: guarded("9.0.0.0/8", "0.0.0.0/0"), eps: eps, want: want("")},
		{name: "this node within: its own VIP may be the source", svc: guarded("192.168.0.0/16"), self: on("192.168.1.5"), eps: eps,
			want: want(" | only [5.6.7.8/32 192.168.0.0/16]")},
		{name: "this node within, two VIPs: each may be the source for both (#109826)", svc: model.Service{LoadBalancerIPs: addrs("5.6.7.8", "5.6.7.9", "fd00::8"),
			SourceRanges: prefixes("192.168.0.0/16"), SourceGuarded: true}, self: on("192.168.1.5"), eps: eps,
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
				"LoadBalancer 5.6.7.8:80/TCP forward 10.1.0.1:8080 | masquerade | only [5.6.7.8/32 5.6.7.9/32 192.168.0.0/16]",
				"LoadBalancer 5.6.7.9:80/TCP forward 10.1.0.1:8080 | masquerade | only [5.6.7.8/32 5.6.7.9/32 192.168.0.0/16]"}},
		{name: "this node not within", svc: guarded("192.168.0.0/16"), self: on("10.0.0.5"), eps: eps,
			want: want(" | only [192.168.0.0/16]")},
		{name: "the other family only: closed", svc: guarded("fd00::/8"), eps: eps, want: want(" | only []")},
		{name: "everybody of the other family: open", svc: guarded("::/0"), eps: eps, want: want("")},
		{name: "each family its own", svc: guarded("9.0.0.0/8", "::/0"), eps: eps, want: want(" | only [9.0.0.0/8]")},
		{name: "NodePorts by annotation", svc: model.Service{Ports: nodePort(), LoadBalancerIPs: addrs("5.6.7.8"),
			Extras: model.Extras{NodePortRanges: prefixes("9.0.0.0/8")}}, eps: eps,
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080",
				"LoadBalancer 5.6.7.8:80/TCP forward 10.1.0.1:8080 | masquerade",
				"NodePort *4:30080/TCP forward 10.1.0.1:8080 | masquerade | only [9.0.0.0/8]"}},
	})
}

func TestMinimal(t *testing.T) {
	in := prefixes("10.0.0.0/9", "10.0.0.0/8", "10.128.0.0/9", "11.0.0.0/8", "fd00::/8", "fd00:1::/32", "11.0.0.0/8")
	keep := slices.Clone(in)
	if got, want := policy.Minimal(in), prefixes("10.0.0.0/8", "11.0.0.0/8", "fd00::/8"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !slices.Equal(in, keep) {
		t.Errorf("the argument was changed: %v", in)
	}
}
