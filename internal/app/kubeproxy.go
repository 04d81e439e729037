package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kubeProxyMetrics is where a kube-proxy serves its metrics by default, on the node's loopback address.
const kubeProxyMetrics = "http://127.0.0.1:10249/metrics"

// liveKubeProxy returns what shows that a kube-proxy runs in the network namespace of this process: a process, where the agent sees those of the
// node, or metrics that are kube-proxy's and not an agent's. "" is nothing: a kube-proxy in another container with other ports is not seen.
func liveKubeProxy(ctx context.Context) string {
	if seen := kubeProxyProcess("/proc"); seen != "" {
		return seen
	}
	return kubeProxyAt(ctx, kubeProxyMetrics)
}

// kubeProxyProcess looks for a process of that name in this network namespace. One that runs this very binary is an agent under that name
// (make image).
func kubeProxyProcess(proc string) string {
	own, err := os.Readlink(filepath.Join(proc, "self/ns/net"))
	if err != nil {
		return ""
	}
	self, _ := os.Stat(filepath.Join(proc, "self/exe")) // nil is no other process's
	names, _ := filepath.Glob(filepath.Join(proc, "[0-9]*/comm"))
	for _, name := range names {
		dir := filepath.Dir(name)
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != "kube-proxy" {
			continue
		}
		if at, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || at != own {
			continue
		}
		if exe, err := os.Stat(filepath.Join(dir, "exe")); err == nil && self != nil && os.SameFile(exe, self) {
			continue
		}
		return "process " + filepath.Base(dir)
	}
	return ""
}

// kubeProxyAt asks an address for metrics.
func kubeProxyAt(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }() // read side only
	const most = 4 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil || !strings.Contains(string(text), "\nkubeproxy_sync_proxy_rules_") || strings.Contains(string(text), "\nfairlead_") {
		return ""
	}
	return fmt.Sprintf("metrics at %s", url)
}
