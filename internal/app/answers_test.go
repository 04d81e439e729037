package app

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// ownService has an address of everybody's, one that few may ask and behind which nobody is, and one that is the node's as well. Others have a part
// of the first, and what this mode does not carry.
const ownService = `
---
apiVersion: v1
kind: Service
metadata: {name: own, namespace: shop}
spec: {type: LoadBalancer, clusterIP: 10.96.0.13, clusterIPs: [10.96.0.13], externalIPs: [198.51.100.13], loadBalancerSourceRanges: [10.0.0.0/8],
  ports: [{name: http, port: 80, protocol: TCP}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.13}, {ip: 198.51.100.15}]}}
---
apiVersion: v1
kind: Service
metadata: {name: also, namespace: shop}
spec: {clusterIP: 10.96.0.14, clusterIPs: [10.96.0.14], externalIPs: [198.51.100.13], ports: [{name: other, port: 82, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: signals, namespace: shop}
spec: {clusterIP: 10.96.0.15, clusterIPs: [10.96.0.15], ports: [{name: m3ua, port: 2905, protocol: SCTP}]}
`

// TestAnswersAtTheServicesOwnAddresses: ClusterIPs are this node's then, and refuse what no Service has. Of an external or load balancer address
// only the Service's port is taken. No client is kept out where nothing listens.
func TestAnswersAtTheServicesOwnAddresses(t *testing.T) {
	script := func(text string) {
		if out, err := exec.Command("sh", "-c", text).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", text, err, out)
		}
	}
	script("ip addr add 198.51.100.15/32 dev lo")
	defer script("ip addr del 198.51.100.15/32 dev lo")
	p := begin(t, agentArgs(folder(t, ownService), "--proxy-mode", "userspace", "--userspace-addresses", "service")...)
	p.says("in sync")
	askAll(t, []asks{
		{"trace --from 192.0.2.7 --to 198.51.100.13:81", 1, []string{"no Service has 198.51.100.13:81: fairlead does not handle these packets"}},
		{"trace --from 192.0.2.7 --to 203.0.113.13:80", 1, []string{"1 guard        nothing listens there, so the source is not checked", "2 dispatch     203.0.113.13:80/TCP is LoadBalancer",
			"Verdict: refused: no usable endpoint"}},
		{"explain --from 192.0.2.7 203.0.113.13:80", 1, []string{"203.0.113.13:80/TCP is refused: no usable endpoint"}},
		{"trace --from 192.0.2.7 --to 203.0.113.13:81", 1, []string{"no Service has 203.0.113.13:81: fairlead does not handle these packets"}},
		{"trace --from 192.0.2.7 --to 10.96.0.13:81", 1, []string{"10.96.0.13 is an address (ClusterIP) of Service shop/own, which has no port 81/TCP: refused"}},
		{"trace --from 192.0.2.7 --to 198.51.100.15:81", 1, []string{"it is an address of this node, and a program that listens there answers"}},
		{"trace --from 192.0.2.7 --to 10.96.0.15:2905/SCTP", 1, []string{"which is not served", "Verdict: not handled: userspace mode does not support SCTP"}},
		{"explain shop/signals", 1, []string{"10.96.0.15:2905/SCTP is not handled: userspace mode does not support SCTP"}},
		{"trace --from 192.0.2.7 --to 10.96.0.15:80", 1, []string{"no Service has 10.96.0.15:80: fairlead does not handle these packets"}},
		{"trace --from 192.0.2.7 --to 198.51.100.14:81", 1, []string{"no Service has 198.51.100.14:81: fairlead does not handle these packets"}},
	})
	p.terminate()
	if code, out := run(t, "cleanup"); code != 0 {
		t.Error(out)
	}
}

// wideService asks for a range of ports, which userspace mode does not carry.
const wideService = `
---
apiVersion: v1
kind: Service
metadata: {name: wide, namespace: shop, annotations: {fairlead.dev/port-range: 8000-8999}}
spec: {clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12], ports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: wide-1, namespace: shop, labels: {kubernetes.io/service-name: wide}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.7], conditions: {ready: true}}]
`

// TestAnswersInUserspaceMode: there the agent's own sockets are compared. The commands say where it answers, and whom an endpoint sees.
func TestAnswersInUserspaceMode(t *testing.T) {
	if code, out := run(t, "cleanup"); code != 0 { // what other tests left would be among the rules of others
		t.Fatal(out)
	}
	p := begin(t, agentArgs(folder(t, webService+brokenService+wideService), "--proxy-mode", "userspace", "--userspace-addresses", "loopback")...)
	p.says("in sync")
	askAll(t, []asks{
		{"explain shop/web", 0, []string{"Service shop/web is forwarded, to 1 endpoint", "In kernel  agrees (",
			"10.244.1.5:8080; the endpoint sees this node: the agent relays the connection", "the agent listens on 127."}},
		{"explain 127.96.0.10:80", 0, []string{"Service shop/web is forwarded, to 1 endpoint", " 10.96.0.10:80/TCP"}},
		{"trace --from 127.0.0.1 --to 127.96.0.10:80", 0, []string{"To   10.96.0.10:80/TCP", "Verdict: sent to 10.244.1.5:8080"}},
		{"explain 127.0.0.1:30080", 1, []string{"Service shop/pay: *4:30080/TCP is refused", "NodePorts are open on 127.0.0.1 (--userspace-addresses)"}},
		{"explain 192.0.2.1:30080", 1, []string{"no Service has 192.0.2.1:30080"}},
		{"trace --from 10.244.1.9 --to 10.96.0.10:80", 0, []string{"relay        to 10.244.1.5:8080; the endpoint sees this node", "Verdict: sent to 10.244.1.5:8080"}},
		{"explain shop/wide", 1, []string{"10.96.0.12:8000-8999/TCP is refused: userspace mode does not support port ranges", "REJECT   userspace mode", "forward  10.244.1.7:8080"}},
		{"trace --from 10.244.1.9 --to 10.96.0.12:8500", 1, []string{"10.96.0.12:8000-8999/TCP is ClusterIP of Service shop/wide port http, which is not served", "Verdict: refused: userspace mode"}},
		{"trace --from 10.244.1.9 --to 10.96.0.12:80", 0, []string{"Verdict: sent to 10.244.1.7:8080"}},
		{"audit", 0, []string{"sockets and routes of the agent: ", " objects read in ", "0 missing, 0 different, 0 foreign\n"}},
		{"audit --repair=false", 0, []string{"0 missing, 0 different, 0 foreign"}},
		{"audit --foreign", 0, []string{"other programs at the same hooks: no rule in nftables or iptables-legacy"}},
		{"status", 1, []string{"mode userspace", "In kernel    yes", "NOT WELL     1 problem"}},
	})
	if _, out := run(t, "explain", "shop/wide"); strings.Contains(out, "the agent listens on 127.96.0.12:8000") {
		t.Errorf("nobody answers for what is not served:\n%s", out)
	}
	if _, out := run(t, "explain", "shop/web"); strings.Contains(out, "masqueraded") {
		t.Errorf("nothing is masqueraded in this mode:\n%s", out)
	}
	resp, err := http.Get("http://127.0.0.1:10249/status?q=shop/web") // the page gives the same answer
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(body), "the agent listens on 127.96.0.10:80") || strings.Contains(string(body), "masqueraded") {
		t.Errorf("the page says something else: %v\n%s", err, body)
	}
	p.terminate()
}
