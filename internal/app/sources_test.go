package app

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
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
		cfg.NoExternalIPsOfNode = on
		if got := viewInputs(cfg).NoExternalIPsOfNode; got != on {
			t.Errorf("--no-external-ips-of-node=%t: NoExternalIPsOfNode is %t", on, got)
		}
	}
}

// TestFolderIsWatched: the alert for a source that is not heard works with a folder of manifests, too.
func TestFolderIsWatched(t *testing.T) {
	dir := folder(t, webService)
	p := begin(t, agentArgs(dir)...)
	p.says("in sync")
	serves := func(row string) {
		t.Helper()
		eventually(t, row, func() error {
			resp, err := http.Get("http://127.0.0.1:10249/metrics")
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err == nil && !strings.Contains(string(body), row+"\n") {
				err = errors.New("no such row")
			}
			return err
		})
	}
	serves(`fairlead_watch_connected{resource="manifests"} 1`)
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	serves(`fairlead_watch_connected{resource="manifests"} 0`)
	if err := os.Rename(dir+"-away", dir); err != nil {
		t.Fatal(err)
	}
	serves(`fairlead_watch_connected{resource="manifests"} 1`)
	askAll(t, []asks{{"status -o json", 0, []string{"the source is available again", `"minutes": [`}}})
	p.terminate()
}
