package policy_test

import (
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

func frontends(svc *model.Service, eps []string) policy.Result {
	return policy.Frontends(policy.Inputs{Service: svc, Slices: sliceSet(svc.Key, svc.Ports, eps),
		Node: policy.Self{Name: "n1", Zone: "a"}})
}

// Contract point 3: hints, and why they are not used.
func TestTopology(t *testing.T) {
	all := "ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 10.1.0.2:8080"
	first := "ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | others 10.1.0.2:8080(serving)"
	runAll(t, []decision{
		{name: "zone", eps: []string{"10.1.0.1 hz:a", "10.1.0.2 hz:b"},
			want: []string{first}, notes: []string{`zone hints name this node's zone "a"`}},
		{name: "hinted for several zones", eps: []string{"10.1.0.1 hz:a,b", "10.1.0.2 hz:b,a"},
			want: []string{all}, notes: []string{`zone hints name this node's zone "a"`}},
		{name: "node before zone", eps: []string{"10.1.0.1 hn:n1 hz:b", "10.1.0.2 hn:n2 hz:a"},
			want: []string{first}, notes: []string{"node hints name this node"}},
		{name: "no node hint for us: zone", eps: []string{"10.1.0.1 hn:n3 hz:a", "10.1.0.2 hn:n2 hz:b"},
			want: []string{first}, notes: []string{`zone hints name this node's zone "a"`}},
		{name: "one node hint missing: zone", eps: []string{"10.1.0.1 hn:n1 hz:a", "10.1.0.2 hz:b"},
			want: []string{first}, notes: []string{`zone hints name this node's zone "a"`}},
		{name: "one zone hint missing turns it off (#103888)", eps: []string{"10.1.0.1 hz:a", "10.1.0.2"},
			want: []string{all}, notes: []string{"zone hints not used: endpoint 10.1.0.2 has no zone hint"}},
		{name: "no endpoint for our zone", eps: []string{"10.1.0.1 hz:b", "10.1.0.2 hz:c"},
			want: []string{all}, notes: []string{`zone hints not used: no endpoint is hinted for zone "a"`}},
		{name: "our zone is unknown", self: policy.Self{Name: "n1"}, eps: []string{"10.1.0.1 hz:a", "10.1.0.2 hz:b"},
			want: []string{all}, notes: []string{"zone hints not used: this node's zone is unknown"}},
		{name: "only node hints, none for us", eps: []string{"10.1.0.1 hn:n2", "10.1.0.2 hn:n3"},
			want: []string{all}, notes: []string{`node hints not used: no endpoint is hinted for node "n1"`}},
		{name: "only node hints, one missing", eps: []string{"10.1.0.1 hn:n1", "10.1.0.2"},
			want: []string{all}, notes: []string{"node hints not used: endpoint 10.1.0.2 has no node hint"}},
		{name: "no hints, no note", eps: []string{"10.1.0.1", "10.1.0.2"}, want: []string{all}, notes: []string{}},
		{name: "an unready endpoint needs no hint", eps: []string{"10.1.0.1 hz:a", "10.1.0.2 hz:b", "10.1.0.3 unready"},
			want:  []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080 | others 10.1.0.2:8080(serving) 10.1.0.3:8080"},
			notes: []string{`zone hints name this node's zone "a"`}},
		{name: "hints of ending endpoints do not count", eps: []string{"10.1.0.1 draining hz:b", "10.1.0.2 draining hz:b"},
			want: []string{all}, notes: []string{"no endpoint is ready: terminating endpoints that still serve are used"}},
		{name: "the local list ignores hints", svc: model.Service{InternalLocal: true, ExternalLocal: true, Ports: nodePort()},
			eps: []string{"10.1.0.1@n1 hz:b", "10.1.0.2@n2 hz:a"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* | others 10.1.0.2:8080(serving)",
				"NodePort *4:30080/TCP forward 10.1.0.2:8080 | outside forward 10.1.0.1:8080*"}},
		{name: "no note where nobody uses the cluster list", svc: model.Service{InternalLocal: true},
			eps:  []string{"10.1.0.1@n1 hz:a", "10.1.0.2@n1"},
			want: []string{"ClusterIP 10.96.0.1:80/TCP forward 10.1.0.1:8080* 10.1.0.2:8080*"}, notes: []string{}},
	})
}
