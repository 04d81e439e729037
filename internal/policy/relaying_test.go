package policy_test

import (
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// What only userspace mode can do reaches every Frontend there; elsewhere each wish is
// a Problem, and no Frontend differs for it.
func TestRelaying(t *testing.T) {
	all := model.Relaying{ProxyProtocol: true, EndpointGrace: -1, MaxConnections: 5}
	svc := service(model.Service{Extras: model.Extras{Relay: all}, Ports: nodePort()})
	for _, relayed := range []bool{true, false} {
		res := policy.Frontends(policy.Inputs{Service: &svc, Node: policy.Self{Relayed: relayed}})
		want, problems := model.Relaying{}, 3
		if relayed {
			want, problems = all, 0
		}
		if len(res.Frontends) < 2 || len(res.Problems) != problems {
			t.Fatalf("%d Frontends, problems %v", len(res.Frontends), res.Problems)
		}
		for i := range res.Frontends {
			if got := res.Frontends[i].Relay; got != want {
				t.Errorf("%s: %+v, want %+v", res.Frontends[i].Key, got, want)
			}
		}
	}
}
