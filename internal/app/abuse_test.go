package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCallersThatNeverRead: a hundred callers who ask and never read hold up neither a change nor, once they are turned away, the next
// caller; and a question of a megabyte is refused and nothing more.
func TestCallersThatNeverRead(t *testing.T) {
	dir := folder(t, webService)
	p := begin(t, agentArgs(dir)...)
	p.says("in sync")
	question := strings.Repeat("GET /explain?q=shop/web HTTP/1.1\r\nHost: x\r\n\r\n", 1000)
	for range 100 {
		c, err := net.Dial("unix", "@fairlead")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		go func() { _, _ = io.WriteString(c, question) }()
	}
	for _, size := range []int{1 << 10, 1 << 20} {
		resp, err := http.Get("http://127.0.0.1:10249/status?q=" + strings.Repeat("%1B", size/3))
		if err != nil {
			if size < 1<<20 {
				t.Error(err)
			}
			continue // it may be cut off while it is still being sent
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
		_ = resp.Body.Close()
		if want := map[int]int{1 << 10: http.StatusOK, 1 << 20: http.StatusRequestHeaderFieldsTooLarge}[size]; resp.StatusCode != want {
			t.Errorf("a question of %d bytes: %s", size, resp.Status)
		}
		if strings.Contains(string(text), "\x1b") && size > 1<<10 {
			t.Error("control characters come back")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "more.yaml"), []byte(brokenService), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is in the kernel", func() error {
		out, err := exec.Command("nft", "list", "map", "ip", "fairlead", "no-endpoints").CombinedOutput()
		if err == nil && !strings.Contains(string(out), "10.96.0.11") {
			err = errors.New(string(out))
		}
		return err
	})
	eventually(t, "the next caller is answered", func() error {
		if code, out := run(t, "explain", "shop/pay"); code != 1 || !strings.Contains(out, "the only endpoint is not ready") {
			return fmt.Errorf("%d %s", code, out)
		}
		return nil
	})
	p.terminate()
}

// TestTraceGoesWithTheAgent: the table of a trace of live packets goes although the agent is killed.
func TestTraceGoesWithTheAgent(t *testing.T) {
	p := begin(t, agentArgs(folder(t, webService), "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	begin(t, "trace", "--from", "10.244.1.9", "--to", "shop/web", "--live", "60s")
	traced := func() (bool, error) {
		out, err := exec.Command("nft", "list", "tables").CombinedOutput()
		return strings.Contains(string(out), "fairlead-trace-"), err
	}
	eventually(t, "the table of the trace", func() error {
		there, err := traced()
		if err == nil && !there {
			err = errors.New("it is not there")
		}
		return err
	})
	_ = p.cmd.Process.Kill()
	eventually(t, "it goes", func() error {
		there, err := traced()
		if there {
			err = errors.New("it is there")
		}
		return err
	})
}

// TestExplainManyPorts: a Service with as many ports as there may be, on many addresses, is explained in a time and a length that
// somebody can wait for.
func TestExplainManyPorts(t *testing.T) {
	var ports, addresses, endpoints []string
	for n := range 1000 {
		ports = append(ports, fmt.Sprintf("{name: p%d, port: %d}", n, 1000+n))
		endpoints = append(endpoints, fmt.Sprintf("{name: p%d, port: %d, protocol: TCP}", n, 1000+n))
	}
	for n := range 11 {
		addresses = append(addresses, fmt.Sprintf("203.0.113.%d", n+1))
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: many, namespace: shop}\nspec: {clusterIP: 10.96.0.50, clusterIPs: [10.96.0.50], externalIPs: [%s], ports: [%s]}\n---\n"+
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: many-1, namespace: shop, labels: {kubernetes.io/service-name: many}}\naddressType: IPv4\nports: [%s]\nendpoints: [{addresses: [10.244.1.5]}]\n",
		strings.Join(addresses, ", "), strings.Join(ports, ", "), strings.Join(endpoints, ", "))
	p := begin(t, agentArgs(folder(t, text))...)
	p.says("in sync")
	for _, args := range [][]string{{"explain", "shop/many"}, {"explain", "shop/many:p500"}, {"explain", "203.0.113.5:1500"}} {
		begun := time.Now()
		code, out := run(t, args...)
		lines := strings.Count(out, "\n")
		compared := strings.Contains(out, "In kernel  agrees (4096 of 24096 objects compared,") || strings.Contains(out, "context deadline exceeded") // on a busy machine
		if code != 0 || len(out) > 1<<20 || !strings.Contains(out, "forwarded") || lines > 600 || !compared && len(args[1]) < 12 {
			t.Errorf("%v: exit code %d, %d bytes: %.2000s", args, code, len(out), out)
		}
		t.Logf("%v: %d lines, %s", args, lines, time.Since(begun))
	}
}
