package policy_test

import (
	"testing"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// What a Service wishes for its connections holds for every Frontend of it.
func TestOffloadReachesEveryFrontend(t *testing.T) {
	for _, wish := range []int{-1, 0, 4} {
		svc := service(model.Service{Extras: model.Extras{Offload: wish}, Ports: nodePort()})
		got := policy.Frontends(policy.Inputs{Service: &svc}).Frontends
		if len(got) < 2 {
			t.Fatalf("%d Frontends", len(got))
		}
		for i := range got {
			if got[i].Offload != wish {
				t.Errorf("%s: %d, want %d", got[i].Key, got[i].Offload, wish)
			}
		}
	}
}
