package app

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// A kube-proxy is seen by its metrics; an agent's, which have its own names too, are not taken for one's.
func TestKubeProxyAt(t *testing.T) {
	for text, want := range map[string]bool{
		"# HELP x\nkubeproxy_sync_proxy_rules_duration_seconds_count 3\n":                   true,
		"# HELP x\nkubeproxy_sync_proxy_rules_duration_seconds_count 3\nfairlead_turns 3\n": false,
		"go_goroutines 3\n": false,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) }))
		if seen := kubeProxyAt(t.Context(), s.URL); (seen != "") != want {
			t.Errorf("%q is kube-proxy's: %q", text, seen)
		}
		s.Close()
	}
	if seen := kubeProxyAt(t.Context(), "http://127.0.0.1:1/metrics"); seen != "" {
		t.Errorf("where nothing listens %q is seen", seen)
	}
}

// serveKubeProxy serves metrics of a kube-proxy with an IPv6 bind address; the agent of the test has the IPv4 one. It returns what ends it.
func serveKubeProxy(t *testing.T) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:10249")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "# HELP x\nkubeproxy_sync_proxy_rules_duration_seconds_count 3\n")
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return s.Close
}

// A kube-proxy is seen by its process, if it is in this network namespace and is no agent under that name.
func TestKubeProxyProcess(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, comm, netns, exe string) {
		dir := filepath.Join(proc, pid)
		for _, err := range []error{os.MkdirAll(filepath.Join(dir, "ns"), 0o700), os.Symlink(netns, filepath.Join(dir, "ns/net")),
			os.WriteFile(filepath.Join(dir, "comm"), []byte(comm+"\n"), 0o600), os.WriteFile(filepath.Join(proc, exe), nil, 0o600),
			os.Symlink(filepath.Join(proc, exe), filepath.Join(dir, "exe"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	process("self", "fairlead", "net:[1]", "ours")
	process("12", "kube-proxy", "net:[2]", "theirs")
	process("13", "kubelet", "net:[1]", "kubelet")
	process("14", "kube-proxy", "net:[1]", "ours")
	if seen := kubeProxyProcess(proc); seen != "" {
		t.Errorf("%q is seen, and none runs here", seen)
	}
	process("15", "kube-proxy", "net:[1]", "theirs")
	if seen := kubeProxyProcess(proc); seen != "process 15" {
		t.Errorf("seen: %q", seen)
	}
}
