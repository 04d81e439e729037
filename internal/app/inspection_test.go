package app

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/policy"
)

const brokenService = `
---
apiVersion: v1
kind: Service
metadata: {name: pay, namespace: shop}
spec: {clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], ports: [{name: http, port: 80, nodePort: 30080, protocol: TCP}], type: NodePort}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: pay-1, namespace: shop, labels: {kubernetes.io/service-name: pay}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.6], conditions: {ready: false}, zone: "z\e[31m"}]
`

// TestStatusAndExplain ask a real agent, as a user does.
func TestStatusAndExplain(t *testing.T) {
	if code, out := run(t, "status"); code != 3 || !strings.Contains(out, "no agent runs in this network namespace") {
		t.Errorf("status without an agent: status %d: %s", code, out)
	}
	p := begin(t, agentArgs(folder(t, webService+brokenService), "--cluster-cidr", "10.244.0.0/16", "-v=2")...)
	p.says("in sync")
	eventually(t, "the first turn is told to its end", func() error {
		if code, out := run(t, "status"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	askAll(t, []asks{
		{"status", 0, []string{"fairlead v0.0.0-test  mode nftables  node node-a", "services 2  slices 2", "In kernel    yes, since", "pending 0  refused 0  problems 0", "none_ready: 1 Service, such as shop/pay",
			"NodePorts    ", " (--nodeport-addresses is primary: no Node object is known, so every address of this machine counts as its primary one)"}},
		{"status -o yaml", 0, []string{"version: v0.0.0-test", "pending: 0"}},
		{"status -o xml", 2, []string{`--output is "xml", and must be text, json or yaml`}},
		{"explain shop/web", 0, []string{"Service shop/web is forwarded, to 1 endpoint", "10.96.0.10:80/TCP", "10.244.1.5:8080", "unless the client is a pod", "In kernel  agrees ("}},
		{"explain -n shop web:http --from 10.244.1.9", 0, []string{"From 10.244.1.9: a pod (in 10.244.0.0/16)"}},
		{"explain 10.96.0.10:80", 0, []string{"Service shop/web is forwarded"}},
		{"explain shop/pay", 1, []string{"Service shop/pay: 10.96.0.11:80/TCP is refused: no usable endpoint (the only endpoint is not ready)", "10.244.1.6:8080", "not ready", `z\x1b[31m`}},
		{"explain :30080", 1, []string{"Service shop/pay: *4:30080/TCP is refused"}},
		{"explain 10.96.0.10:81/TCP", 1, []string{"10.96.0.10 is the ClusterIP of Service shop/web, which has no port 81/TCP: refused"}},
		{"explain 192.0.2.1:80", 1, []string{"no Service has 192.0.2.1:80: fairlead does not handle these packets"}},
		{"explain shop/nothing", 1, []string{"no Service shop/nothing is known"}},
		{"explain shop/web:https", 1, []string{`Service shop/web has no port "https"`}},
		{"explain a/b/c", 2, []string{`"a/b/c" is not [NAMESPACE/]SERVICE[:PORT]`}},
		{"explain shop/web --from here", 2, []string{`--from is "here", and must be an IP address`}},
		{"explain", 2, []string{"explain takes one argument"}},
	})
	_, out := run(t, "explain", "shop/web", "-o", "json")
	var e inspect.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil || !e.Well || e.Outcome != "forward" || len(e.Keys) != 1 || len(e.Endpoints) != 1 {
		t.Errorf("as JSON: %v: %s", err, out)
	}
	if !strings.Contains(p.log(), `msg="NodePorts: `) {
		t.Errorf("the log does not say where NodePorts are open:\n%s", p.log())
	}
	if !strings.Contains(p.log(), `msg="noted: the only endpoint is not ready" service=shop/pay`) {
		t.Errorf("the log does not say what is noted:\n%s", p.log())
	}
	pages(t)
	p.terminate()
}

// pages reads those of the metrics address.
func pages(t *testing.T) {
	t.Helper()
	for path, want := range map[string]string{
		"/status":                 "Services that need attention",
		"/status?q=shop%2Fweb":    "Service shop/web is forwarded, to 1 endpoint",
		"/status?q=w":             `href="/status?q=shop%2fweb"`,
		"/status?q=10.96.0.11:80": "the only endpoint is not ready",
		"/statusz":                "Binary version: fairlead v0.0.0-test",
		"/flagz":                  "hostname-override=node-a",
	} {
		resp, err := http.Get("http://127.0.0.1:10249" + path)
		if err != nil {
			t.Error(err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v %s: no %q in:\n%s", path, err, resp.Status, want, body)
		}
	}
}

// TestNoteReasonsAreServed: policy names the reasons, metrics serves a row for each.
func TestNoteReasonsAreServed(t *testing.T) {
	w := newWatched(t)
	for k := policy.HintsUsed + 1; int(k) <= policy.NumNoteKinds; k++ {
		if got := w.row(t, `fairlead_services_noted{reason="`+k.String()+`"}`); got != "0" {
			t.Errorf("reason %s: %s", k, got)
		}
	}
}

// TestConntrackStatistics reads the kernel's table, which has hexadecimal numbers and a
// line for each CPU.
func TestConntrackStatistics(t *testing.T) {
	text := "entries  searched insert_failed drop\n0000000a 00000000 0000000f 00000001\n0000000a 00000000 00000001 00000000\n"
	if n := sumStat(text, "insert_failed"); n != 16 {
		t.Errorf("%d", n)
	}
	if n := sumStat(text, "no_such"); n != 0 {
		t.Errorf("%d", n)
	}
}

// TestLaterTableWins: of two proxies the one that was hooked later is asked first.
func TestLaterTableWins(t *testing.T) {
	list := strangersAmong(map[string]uint64{"ip kube-proxy": 9, "ip6 kube-proxy": 3}, 5, false)
	if len(list) != 2 || !list[0].Wins || list[1].Wins || list[0].Remove != "fairlead cleanup --kube-proxy" {
		t.Errorf("%+v", list)
	}
	if list = strangersAmong(map[string]uint64{"ip kube-proxy": 9}, 0, true); len(list) != 1 || list[0].Wins || !list[0].Unsure || list[0].Remove != "" {
		t.Errorf("beside a mode without tables: %+v", list)
	}
}
