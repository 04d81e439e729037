package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/inspect"
)

// cluster makes the manifests of one Service of namespace shop with one port, http.
func cluster(name, spec, endpoints string, ip int) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec: {clusterIP: 10.96.1.%[4]d, clusterIPs: [10.96.1.%[4]d], ports: [{name: http, port: 80, nodePort: 301%[4]d, protocol: TCP}], %[2]s}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [%[3]s]
`, name, spec, endpoints, ip)
}

// TestBrokenClusters: of each Service that does not answer the one command names the
// cause in its first lines.
func TestBrokenClusters(t *testing.T) {
	text := webService +
		cluster("selector", "type: NodePort", "", 10) +
		cluster("unready", "type: NodePort", "{addresses: [10.244.1.21], conditions: {ready: false}}, {addresses: [10.244.1.22], conditions: {ready: false}}", 11) +
		cluster("local", "type: NodePort, externalTrafficPolicy: Local", "{addresses: [10.244.2.23], nodeName: node-b}", 12) +
		cluster("hints", "type: NodePort", "{addresses: [10.244.1.24], hints: {forZones: [{name: a}]}}, {addresses: [10.244.1.25]}", 13) +
		strings.Replace(cluster("ranges", "type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8]", "{addresses: [10.244.1.26]}", 14),
			"\n---\napiVersion: discovery", "\nstatus: {loadBalancer: {ingress: [{ip: 203.0.113.14}]}}\n---\napiVersion: discovery", 1) +
		cluster("claimant", "type: NodePort, externalIPs: [203.0.113.14]", "{addresses: [10.244.1.27]}", 15)
	p := begin(t, agentArgs(folder(t, text), "--cluster-cidr", "10.244.0.0/16", "--no-takeover")...) // which would remove kube-proxy's table below, if it looked late
	p.says("in sync")
	for _, c := range []struct {
		asks
		lines int // in which it must be said
	}{
		{asks{"explain shop/selector", 1, []string{"refused", "no pod matches the selector"}}, 1},
		{asks{"explain shop/unready", 1, []string{"refused", "none of 2 endpoints is ready"}}, 1},
		{asks{"explain shop/local", 1, []string{"is dropped for all other clients: externalTrafficPolicy is Local, and no usable endpoint is on this node"}}, 1},
		{asks{"explain shop/hints", 0, []string{"zone hints not used: endpoint 10.244.1.25 has no zone hint"}}, 3},
		{asks{"explain 203.0.113.14:80 --from 192.0.2.7", 1, []string{"Service shop/ranges: 203.0.113.14:80/TCP is dropped: 192.0.2.7 is not in loadBalancerSourceRanges 10.0.0.0/8"}}, 1},
		{asks{"explain shop/claimant", 1, []string{"203.0.113.14:80/TCP is already taken by Service shop/ranges"}}, 1},
	} {
		code, out := run(t, strings.Fields(c.args)...)
		first := strings.Join(strings.SplitN(out, "\n", c.lines+1)[:c.lines], "\n")
		if code != c.code {
			t.Errorf("fairlead %s: status %d, want %d:\n%s", c.args, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(first, want) {
				t.Errorf("fairlead %s: no %q in the first %d lines of:\n%s", c.args, want, c.lines, out)
			}
		}
	}
	nftScript(t, "table inet them { chain watch { type filter hook forward priority 5; ip daddr 10.244.1.5 drop; }; }")
	askAll(t, []asks{{"audit --foreign", 1, []string{"table inet them, chain watch (filter, forward, priority 5): drop packets to 10.244.1.5/32: an endpoint of Service shop/web"}}})
	nftScript(t, "table ip kube-proxy { chain services { type nat hook prerouting priority -100; }; }")
	t.Cleanup(func() { _, _ = run(t, "cleanup", "--kube-proxy") })
	askAll(t, []asks{{"status", 1, []string{"table ip kube-proxy (rules of kube-proxy): TAKES PRECEDENCE (its hooks were registered later); remove with: fairlead cleanup --kube-proxy"}}})
	stop := serveKubeProxy(t)
	askAll(t, []asks{
		{"status", 1, []string{"Problem      kube-proxy runs in this network namespace (metrics at http://[::1]:10249/metrics)", "stop it: delete its DaemonSet", "TAKES PRECEDENCE (its hooks were registered later)\n"}},
		{"cleanup --kube-proxy", 1, []string{"kube-proxy runs in this network namespace", "--force"}},
	})
	stop()
	askAll(t, []asks{{"status", 1, []string{"remove with: fairlead cleanup --kube-proxy"}}})
	p.terminate()
	askAll(t, []asks{{"status", 3, []string{"no agent runs in this network namespace"}}})
}

// TestServerAway: an agent that has never reached its API server says so.
func TestServerAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // nothing listens there now
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: \"http://" + addr + "\"}}]\nusers: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "run", "--kubeconfig", path, "--hostname-override", "node-a", "--proxy-mode", "nftables", "--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s")
	eventually(t, "status names the server", func() error {
		code, out := run(t, "status")
		if code != 1 || !strings.Contains(out, addr) || !strings.Contains(out, "NOT WELL     the first sync is not complete: still waiting for ") {
			return errors.New(out)
		}
		return nil
	})
	askAll(t, []asks{ // whose an address is cannot be told, and an earlier agent's rules may still be there
		{"explain 10.96.0.10:80", 1, []string{"no Service with 10.96.0.10:80 is known yet; existing rules are kept until the sources are read: still waiting for "}},
		{"explain :30080", 1, []string{"no Service with the NodePort 30080 is known yet"}},
		{"trace --from 10.244.1.9 --to 10.96.0.10:80", 1, []string{"Verdict: no Service with 10.96.0.10:80 is known yet"}},
	})
	p.terminate()
}

// TestUnwell: what a test cannot do to this machine's kernel, told to the same code.
func TestUnwell(t *testing.T) {
	now := time.Now()
	for want, change := range map[string]func(*inspect.Status){
		"the kernel rejected the rules of 1 Service": func(s *inspect.Status) {
			s.Refused = []inspect.Refused{{Service: "shop/pay", Objects: []string{"eps 10.96.0.11:80/TCP"}, Err: "no space", Since: now, RetryAt: now}}
		},
		"Refused      shop/pay: eps 10.96.0.11:80/TCP (no space), quarantined since": func(s *inspect.Status) {
			s.Refused = []inspect.Refused{{Service: "shop/pay", Objects: []string{"eps 10.96.0.11:80/TCP"}, Err: "no space", Since: now, RetryAt: now}}
		},
		"conntrack is full: 262144 of 262144 flows":             func(s *inspect.Status) { s.Flows = &inspect.Flows{Count: 262144, Max: 262144} },
		"the last write failed: no memory":                      func(s *inspect.Status) { s.Kernel.Err = "no memory" },
		"pending changes are not written to the kernel in time": func(s *inspect.Status) { s.Kernel.Healthy = false },
		"API server: cannot reach it":                           func(s *inspect.Status) { s.Source = inspect.Source{Name: "API server", Err: "cannot reach it"} },
		"3 problems":                                            func(s *inspect.Status) { s.Troubled = 3 },
	} {
		s := inspect.Status{Now: now, Since: now, Source: inspect.Source{Name: "API server", Connected: true}, Kernel: inspect.InKernel{Synced: now, Healthy: true}}
		if list := s.Unwell(); len(list) > 0 {
			t.Fatalf("well, and yet %q", list)
		}
		change(&s)
		var b strings.Builder
		s.Text(&b)
		if len(s.Unwell()) != 1 || !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}
