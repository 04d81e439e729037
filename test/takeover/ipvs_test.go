package takeover_test

import (
	"os"
	"testing"
)

// needIPVS skips a test where the kernel has no IPVS; the machines of test/vm have it.
func needIPVS(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Skip("needs a kernel with IPVS") // only the kernels of test/vm have it
	}
}
