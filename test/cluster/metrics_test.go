package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serverMetric returns the sum over the series of the API server's metric whose labels contain the given text.
func (e *env) serverMetric(name, labels string) float64 {
	e.t.Helper()
	page, err := e.cluster.Admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(e.t.Context())
	must(e.t, err)
	return sum(string(page), name, labels)
}

// subjectMetric reads a metric from the subject's page, from inside its node.
func (e *env) subjectMetric(ctx context.Context, name string) (float64, error) {
	client := http.Client{Transport: &http.Transport{DialContext: e.lab.Node().Dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read the subject's metrics: %w", err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("read the subject's metrics: %w", err)
	}
	if !strings.Contains(string(page), "\n"+name) {
		return 0, fmt.Errorf("read the subject's metrics: no %s", name)
	}
	return sum(string(page), name, ""), nil
}

func sum(page, name, labels string) (total float64) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != '{' && rest[0] != ' ') || !strings.Contains(rest, labels) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
		if err == nil {
			total += value
		}
	}
	return total
}

// testRestartWritesNothing: after kill -9 with no change in between, the new process finds the kernel in sync and writes no
// object.
func testRestartWritesNothing(t *testing.T, e *env) {
	if e.subject.name != "fairlead" {
		t.Skipf("%s does not count the objects it writes", e.subject.name)
	}
	web := clusterIPs(e.createService("web"))
	e.setBackends("web", 8080, "pod-a1", "pod-b1")
	e.agent.start()
	e.eventually("the Service answers", e.reach(web, 8080, "pod-a1", "pod-b1"))
	if n, err := e.subjectMetric(t.Context(), "fairlead_operations_total"); err != nil || n == 0 {
		t.Errorf("operations of the first start: %v (%v), want some: else the metric does not count", n, err)
	}
	e.agent.kill()
	e.agent.start()
	e.eventually("the new process has synced", func(ctx context.Context) error {
		at, err := e.subjectMetric(ctx, "kubeproxy_sync_proxy_rules_last_timestamp_seconds")
		if err == nil && at == 0 {
			err = fmt.Errorf("no sync yet")
		}
		return err
	})
	if n, err := e.subjectMetric(t.Context(), "fairlead_operations_total"); err != nil || n != 0 {
		t.Errorf("operations of the restart: %v (%v), want 0", n, err)
	}
	e.eventually("the Service still answers", e.reach(web, 8080, "pod-a1", "pod-b1"))
}
