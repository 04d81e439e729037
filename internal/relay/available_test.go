package relay

import "testing"

// A low limit of descriptors leaves the agent enough of its own: it needs about 30.
func TestDescriptorsOfTheAgent(t *testing.T) {
	for _, limit := range []int{64, 100, 150, 256, 1024, 1 << 20} {
		if n := availableOf(limit); n <= 0 || limit-n < 40 {
			t.Errorf("of %d the relay may use %d", limit, n)
		}
	}
}
