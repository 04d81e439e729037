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

	"github.com/fairlead/fairlead/internal/takeover"
)

// kubeProxyMetrics is where a kube-proxy serves its metrics by default; the second one with an IPv6 --bind-address.
func kubeProxyMetrics() [2]string {
	return [...]string{"http://127.0.0.1:10249/metrics", "http://[::1]:10249/metrics"}
}

// kubeProxyTimeout bounds how long each of these addresses may take to answer.
const kubeProxyTimeout = 2 * time.Second

// liveKubeProxy returns what shows that a kube-proxy runs in the network namespace of this process: a process, where the agent sees those of the
// node, or metrics that are kube-proxy's and not an agent's. "" is nothing: a kube-proxy in another container with other ports is not seen.
func liveKubeProxy(ctx context.Context) string {
	if seen := kubeProxyProcess("/proc"); seen != "" {
		return seen
	}
	for _, url := range kubeProxyMetrics() {
		if seen := kubeProxyAt(ctx, url); seen != "" {
			return seen
		}
	}
	return ""
}

// otherProxy returns the problem that another proxy runs in this network namespace, with what to do; "" if none is recognised.
func (a *agent) otherProxy(ctx context.Context) string {
	if seen := liveKubeProxy(ctx); seen != "" {
		return "kube-proxy runs in this network namespace (" + seen + ") and writes rules for the same Services: " + takeover.StopKubeProxy
	}
	if places := a.memory.rewritten(); places != "" {
		return "another proxy runs in this network namespace and writes its rules again in " + places + ": stop it, then run fairlead cleanup --kube-proxy"
	}
	return ""
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
	ctx, cancel := context.WithTimeout(ctx, kubeProxyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	req.Close = true
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
