package policy_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// Where the data plane has one list, pods and the node share what is for everybody else, and nobody's flow ends for it.
func TestOneList(t *testing.T) {
	for name, c := range map[string]struct {
		local     bool
		endpoints []string
		want      string
	}{
		"some here": {true, []string{"10.1.0.1@n1", "10.1.0.2@n2", "10.1.0.3@n2 unready", "10.1.0.0@n2"},
			"NodePort *4:30080/TCP forward 10.1.0.1:8080* | outside forward 10.1.0.1:8080* | others 10.1.0.0:8080(serving) 10.1.0.2:8080(serving) 10.1.0.3:8080"},
		"none here": {true, []string{"10.1.0.2@n2"}, "NodePort *4:30080/TCP forward 10.1.0.2:8080 | outside drop"},
		"Cluster":   {false, []string{"10.1.0.1@n1", "10.1.0.2@n2"}, "NodePort *4:30080/TCP forward 10.1.0.1:8080* 10.1.0.2:8080 | masquerade"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := service(model.Service{ExternalLocal: c.local, Ports: nodePort()})
			res := policy.Frontends(policy.Inputs{Service: &svc, Slices: sliceSet(svc.Key, svc.Ports, c.endpoints), Node: policy.Self{Name: "n1", Zone: "a"}})
			cluster := line(&res.Frontends[0])
			res.OneList()
			if got := line(&res.Frontends[1]); got != c.want {
				t.Errorf("\n%s, want\n%s", got, c.want)
			}
			if got := line(&res.Frontends[0]); got != cluster {
				t.Errorf("the ClusterIP became %s, was %s", got, cluster)
			}
			if f := &res.Frontends[1]; name == "some here" && !slices.Contains(f.Others, model.Other{Addr: f.Others[1].Addr, Serving: true, Why: model.Elsewhere}) {
				t.Errorf("it is not said why: %v", f.Others)
			}
		})
	}
}
