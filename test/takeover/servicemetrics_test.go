package takeover_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// numbers reads the rows of /metrics whose names begin with one of the prefixes.
func numbers(t *testing.T, h *netlab.Host, prefixes ...string) map[string]float64 {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return h.Dial(ctx, network, address)
		}}}
	resp, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := map[string]float64{}
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 8<<20)); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		name, value := lines.Text()[:max(at, 0)], lines.Text()[at+1:]
		if n, err := strconv.ParseFloat(value, 64); err == nil && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out[name] = n
		}
	}
	return out
}

const countedService = `apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: demo}
spec: {type: LoadBalancer, clusterIP: %[2]s, clusterIPs: [%[2]s], %[3]sports: [{name: http, port: 80, protocol: %[7]s, nodePort: %[4]d}]}
status: {loadBalancer: {ingress: [{ip: %[5]s}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: demo, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: %[7]s}]
endpoints: [%[6]s]
`

// TestServiceMetrics checks that the metrics by Service and by endpoint are exact: connections, those without an answer, their bytes, rejects and
// drops. A restart resets them, and writes nothing.
func TestServiceMetrics(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			lab := newLab(t)
			if err := lab.Node().Sysctl("net/netfilter/nf_conntrack_acct", "1"); err != nil {
				t.Fatal(err)
			}
			here := `{addresses: [10.244.1.11], nodeName: node-a}`
			files := []kit.File{
				{Name: "web.yaml", Data: fmt.Sprintf(countedService, "web", "10.96.0.10", "", 30080, "203.0.113.10", here, "TCP")},
				{Name: "empty.yaml", Data: fmt.Sprintf(countedService, "empty", "10.96.0.11", "", 30081, "203.0.113.11", "", "TCP")},
				{Name: "away.yaml", Data: fmt.Sprintf(countedService, "away", "10.96.0.12", "externalTrafficPolicy: Local, ", 30082, "203.0.113.12", `{addresses: [10.244.1.12], nodeName: node-b}`, "UDP")},
				{Name: "guarded.yaml", Data: fmt.Sprintf(countedService, "guarded", "10.96.0.13", "loadBalancerSourceRanges: [10.0.0.0/8], ", 30083, "203.0.113.13", here, "UDP")},
				{Name: "silent.yaml", Data: fmt.Sprintf(countedService, "silent", "10.96.0.14", "", 30084, "203.0.113.14", `{addresses: [10.244.1.99]}`, "UDP")},
			}
			agent := start(t, binary(t), kit.Setup{Lab: lab, Mode: mode, Flags: []string{"--service-metrics=10", "--nodeport-addresses=0.0.0.0/0"}, Files: files})
			wants := counted(t, lab)
			t.Cleanup(func() {
				if t.Failed() {
					out, err := lab.Node().Run(context.WithoutCancel(t.Context()), "sh", "-c", "nft list ruleset; iptables-legacy-save -c; iptables-nft-save -c")
					t.Log(out, err)
				}
			})
			takeover.Eventually(t, "the numbers", func() error { return differ(numbers(t, lab.Node(), "fairlead_service_", "fairlead_endpoint_"), wants) })
			if out, err := lab.Node().Run(t.Context(), agent.Binary, "audit"); err != nil {
				t.Errorf("the audit finds what counting wrote: %v %s", err, out)
			}
			agent.Kill()
			if err := agent.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name, n := range numbers(t, lab.Node(), "fairlead_service_") {
				if n != 0 && !strings.Contains(name, `service="canary"`) { // the kit sends requests to it
					t.Errorf("after a restart %s is %v", name, n)
				}
			}
			if n := numbers(t, lab.Node(), "fairlead_operations_total")["fairlead_operations_total"]; n != 0 {
				t.Errorf("a restart wrote %v objects", n)
			}
		})
	}
}

// counted sends the requests that the metrics count, and returns the expected numbers.
func counted(t *testing.T, lab *netlab.Lab) map[string]float64 {
	t.Helper()
	ask := func(to string, n int, want netlab.Outcome) {
		t.Helper()
		for range n {
			if got := ask(t, lab.Client(), netip.MustParseAddrPort(to)); got != want {
				t.Errorf("%s: %s, want %s", to, got, want)
			}
		}
	}
	ask("10.96.0.10:80", 3, netlab.Answered)
	ask("203.0.113.10:80", 2, netlab.Answered)
	ask("10.96.0.11:80", 2, netlab.Refused)
	ask("172.18.0.2:30081", 3, netlab.Refused)
	datagram(t, lab.Client(), "203.0.113.13:80")
	datagram(t, lab.Client(), "203.0.113.13:80")
	datagram(t, lab.Client(), "203.0.113.12:80")
	datagram(t, lab.Client(), "10.96.0.14:80")
	if err := lab.FlushConntrack("node-a"); err != nil { // which ends all connections
		t.Error(err)
	}
	row := func(name, service, more string) string {
		return fmt.Sprintf(`fairlead_%s{%snamespace="demo",port="http",service=%q}`, name, more, service)
	}
	const oneByte = 20 + 8 + 1 // with the headers of IP and UDP
	return map[string]float64{
		row("service_connections_total", "web", ""):                                            5,
		row("endpoint_connections_total", "web", `endpoint="10.244.1.11:8080",`):               5,
		row("service_connections_total", "silent", ""):                                         1,
		row("service_unanswered_total", "silent", ""):                                          1,
		row("service_bytes_total", "silent", `direction="sent",`):                              oneByte,
		row("service_bytes_total", "silent", `direction="received",`):                          0,
		row("endpoint_bytes_total", "silent", `direction="sent",endpoint="10.244.1.99:8080",`): oneByte,
		row("service_unanswered_total", "web", ""):                                             0,
		row("service_refused_packets_total", "empty", ""):                                      5,
		row("service_dropped_packets_total", "guarded", ""):                                    2,
		row("service_dropped_packets_total", "away", ""):                                       1,
	}
}

// datagram sends one datagram from its own port.
func datagram(t *testing.T, h *netlab.Host, to string) {
	t.Helper()
	c, err := h.Dial(t.Context(), "udp", to)
	if err == nil {
		_, err = c.Write([]byte("x"))
		_ = c.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// differ returns an error that names the number that differs from the expected one.
func differ(got, want map[string]float64) error {
	for name, n := range want {
		if got[name] != n {
			return fmt.Errorf("%s is %v, want %v; there are %v", name, got[name], n, got)
		}
	}
	return nil
}
