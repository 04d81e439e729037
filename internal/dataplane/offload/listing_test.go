package offload

import (
	"os/exec"
	"strings"
	"testing"
)

// TestListing: nft can print what we write, and says the threshold.
func TestListing(t *testing.T) {
	onBoth(t, func(w *world) {
		if w.fake != nil {
			return
		}
		w.start(w.driver(nil), plain(1))
		for _, family := range []string{"ip", "ip6"} {
			out, err := exec.Command("nft", "list", "table", family, tableName).CombinedOutput()
			if text := string(out); err != nil || !strings.Contains(text, "ct packets > 20 ct status dnat jump take") || !strings.Contains(text, "flow add @kube-proxy-flowtable") {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
}
