package takeover_test

import (
	"os"
	"testing"
)

// needIPVS skips a test if the kernel has no IPVS; the machines of test/vm have it.
func needIPVS(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Skip("needs a kernel with IPVS") // only the kernels of test/vm have it
	}
}

// TestMigrateIPVS migrates a running agent from each other mode to ipvs mode and back. In an emulated machine each takes minutes, so the test runs
// only on request: FAIRLEAD_VM_FULL=1 RUN=TestMigrateIPVS make test-vm, with PART=/iptables-nft for one of them.
func TestMigrateIPVS(t *testing.T) {
	if os.Getenv("FAIRLEAD_VM_FULL") == "" {
		t.Skip("takes minutes in an emulated machine: FAIRLEAD_VM_FULL=1 RUN=TestMigrateIPVS make test-vm") // it would take a fifth of make test
	}
	needIPVS(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { migrating(t, newLab(t), mode, []string{"ipvs", mode}) })
	}
}
