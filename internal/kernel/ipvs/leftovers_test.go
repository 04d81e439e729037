package ipvs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSetsOfKubeProxy: the names of kube-proxy 1.36's ipsets, two of which it truncates, and others that only resemble them.
func TestSetsOfKubeProxy(t *testing.T) {
	for name, want := range map[string]struct {
		theirs   bool
		protocol uint8
	}{
		"KUBE-CLUSTER-IP":                 {true, 0},
		"KUBE-NODE-PORT-TCP":              {true, unix.IPPROTO_TCP},
		"KUBE-6-NODE-PORT-LOCAL-UDP":      {true, unix.IPPROTO_UDP},
		"KUBE-NODE-PORT-LOCAL-SCTP-HASH":  {true, unix.IPPROTO_SCTP},
		"KUBE-6-NODE-PORT-LOCAL-SCTP-HAS": {true, unix.IPPROTO_SCTP},
		"KUBE-6-LOAD-BALANCER-SOURCE-CID": {true, 0},
		"KUBE-LOAD-BALANCER-SOURCE-CIDR":  {true, 0},
		"KUBE-LOAD-BALANCER-SOURCE-CID":   {false, 0},
		"CLUSTER-IP":                      {false, 0},
		"KUBE-6-KUBE-CLUSTER-IP":          {false, 0},
	} {
		if got := isKubeProxys(name); got != want.theirs {
			t.Errorf("%s is kube-proxy's: %t, want %t", name, got, want.theirs)
		}
		if got := protocolOf(name); got != want.protocol {
			t.Errorf("%s has NodePorts of protocol %d, want %d", name, got, want.protocol)
		}
	}
}
