package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const webService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.5], conditions: {ready: true}}]
`

// folder makes a folder of manifests with one file.
func folder(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	writeManifest(t, dir, text)
	return dir
}

func writeManifest(t *testing.T, dir, text string) {
	t.Helper()
	tmp := filepath.Join(dir, ".web.tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
}

// agentArgs are those of an agent in this test's namespace.
func agentArgs(dir string, more ...string) []string {
	return append([]string{"run", "--manifests", dir, "--hostname-override", "node-a", "--proxy-mode", "nftables",
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s"}, more...)
}

// TestOneAgentPerNamespace: two agents would repair each other's rules for ever, and
// a clean-up beside an agent would be undone at once.
func TestOneAgentPerNamespace(t *testing.T) {
	dir := folder(t, webService)
	first := begin(t, agentArgs(dir)...)
	first.says("in sync")
	code, out := run(t, agentArgs(dir)...)
	if want := "already manages this network namespace"; code != 1 || !strings.Contains(out, want) || !strings.Contains(out, "(v0.0.0-test, since ") {
		t.Errorf("a second agent: status %d, want 1 and %q:\n%s", code, want, out)
	}
	for _, args := range [][]string{{"cleanup"}, {"--cleanup"}} {
		if code, out := run(t, args...); code != 1 || !strings.Contains(out, "stop it first") {
			t.Errorf("%v under a running agent: status %d:\n%s", args, code, out)
		}
	}
	if code, out := run(t, "cleanup", "--force"); code != 0 {
		t.Errorf("cleanup --force: status %d:\n%s", code, out)
	}
	first.says("repaired drift caused by another program")
	first.terminate()
	if code, out := run(t, "cleanup"); code != 0 {
		t.Errorf("cleanup with no agent: status %d:\n%s", code, out)
	}
	after := begin(t, agentArgs(dir)...)
	after.says("in sync")
	_ = after.cmd.Process.Kill() // the kernel gives the lock back
	<-after.done
	again := begin(t, agentArgs(dir)...)
	again.says("in sync")
	again.terminate()
}
