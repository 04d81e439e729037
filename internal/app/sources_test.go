package app

import (
	"testing"

	"github.com/fairlead/fairlead/internal/config"
)

// The gate of kube-proxy 1.36 must reach policy, which obeys it.
func TestTheGateOfExternalIPsReachesPolicy(t *testing.T) {
	for _, on := range []bool{true, false} {
		cfg := &config.Config{FeatureGates: map[string]bool{"AllowServiceExternalIPs": on}}
		if got := viewInputs(cfg).NoExternalIPs; got == on {
			t.Errorf("gate %t: NoExternalIPs is %t", on, got)
		}
	}
}
