package policy_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// What only userspace mode can do reaches every Frontend there; elsewhere each wish is
// a Problem, and no Frontend differs for it.
func TestRelaying(t *testing.T) {
	all := model.Relaying{ProxyProtocol: true, EndpointGrace: -1, MaxConnections: 5, KeepSource: true}
	svc := service(model.Service{Extras: model.Extras{Relay: all}, Ports: nodePort()})
	for _, relayed := range []bool{true, false} {
		res := policy.Frontends(policy.Inputs{Service: &svc, Node: policy.Self{Relayed: relayed}})
		want, problems := model.Relaying{}, 4
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

// Where clients' addresses cannot be kept, the Service's wish is a Problem that says why,
// and no Frontend asks for it.
func TestNoSource(t *testing.T) {
	svc := service(model.Service{Extras: model.Extras{Relay: model.Relaying{KeepSource: true, MaxConnections: 5}}, Ports: nodePort()})
	for why, problems := range map[string]int{"": 0, "no namespace of its own": 1} {
		res := policy.Frontends(policy.Inputs{Service: &svc, Node: policy.Self{Relayed: true, NoSource: why}})
		if len(res.Problems) != problems || problems == 1 && !strings.Contains(res.Problems[0].String(), "fairlead.dev/source-address") || problems == 1 && !strings.Contains(res.Problems[0].Reason, why) {
			t.Errorf("%q: %v", why, res.Problems)
		}
		for i := range res.Frontends {
			if got := res.Frontends[i].Relay; got.KeepSource != (why == "") || got.MaxConnections != 5 {
				t.Errorf("%q: %+v", why, got)
			}
		}
	}
}
