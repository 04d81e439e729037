package app

import (
	"errors"
	"strings"
	"testing"
)

// bothFamilies are Services of two families and two protocols, of which one half has endpoints.
const bothFamilies = `
---
apiVersion: v1
kind: Service
metadata: {name: names, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.0.53, clusterIPs: [10.96.0.53], ports: [{name: tcp, port: 53, nodePort: 30053, protocol: TCP}, {name: udp, port: 53, nodePort: 30053, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: names-1, namespace: shop, labels: {kubernetes.io/service-name: names}}
addressType: IPv4
ports: [{name: tcp, port: 8053, protocol: TCP}]
endpoints: [{addresses: [10.244.1.5]}]
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: shop}
spec: {type: NodePort, clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12, "fd00:96::12"], ports: [{name: http, port: 80, nodePort: 30081, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: two-4, namespace: shop, labels: {kubernetes.io/service-name: two}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.6]}]
---
apiVersion: v1
kind: Service
metadata: {name: first, namespace: shop}
spec: {clusterIP: 10.96.0.13, clusterIPs: [10.96.0.13], externalIPs: [203.0.113.7], ports: [{port: 53, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: second, namespace: shop}
spec: {clusterIP: 10.96.0.14, clusterIPs: [10.96.0.14], externalIPs: [203.0.113.7], ports: [{port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: third, namespace: shop}
spec: {clusterIP: 10.96.0.15, clusterIPs: [10.96.0.15], externalIPs: [203.0.113.7], ports: [{port: 53, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: pods, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None], ports: [{name: http, port: 80, protocol: TCP}]}
`

// TestAllThatIsAskedAbout: a question that may mean two protocols or families is answered for both, one about a client only for
// what the client can reach, and who asks about an address learns whose it is.
func TestAllThatIsAskedAbout(t *testing.T) {
	p := begin(t, agentArgs(folder(t, webService+bothFamilies), "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	askAll(t, []asks{
		{"explain 10.96.0.53:53", 1, []string{"10.96.0.53:53/UDP is refused", "10.96.0.53:53/TCP  ClusterIP  forward", "10.96.0.53:53/UDP  ClusterIP  REJECT"}},
		{"explain 10.96.0.53:53/TCP", 0, []string{"is forwarded, to 1 endpoint"}},
		{"explain :30053", 1, []string{"*4:30053/UDP is refused", "*4:30053/TCP  NodePort  forward"}},
		{"explain :30081", 1, []string{"*6:30081/TCP is refused", "*4:30081/TCP  NodePort  forward"}},
		{"explain :30081 --from 192.0.2.7", 0, []string{"*4:30081/TCP  NodePort  forward"}},
		{"explain 203.0.113.7:53", 1, []string{"Service shop/first: 203.0.113.7:53/TCP is refused", "Why        203.0.113.7:53/UDP is not included: it belongs to Service shop/second",
			"also claimed by shop/third, which is not served"}},
		{"explain 203.0.113.7:30053", 1, []string{"no Service has 203.0.113.7:30053"}}, // a NodePort is not on every address
		{"explain [fd00:96::12]:80", 1, []string{"[fd00:96::12]:80/TCP is refused", "no   <- not in this query: it receives connections over IPv4"}},
		{"explain shop/two:http --from fd00::7", 1, []string{"[fd00:96::12]:80/TCP is refused"}},
		{"explain shop/web --from fd00::7", 1, []string{"Service shop/web has no address of IPv6 here, so fd00::7 cannot reach it"}},
		{"explain 10.96.0.10:80 --from fd00::7", 2, []string{"from fd00::7 to 10.96.0.10:80: the addresses are of different families"}},
		{"explain 10.96.0.10:81", 1, []string{"10.96.0.10 is the ClusterIP of Service shop/web, which has no port 81: refused"}},
		{"explain shop/pods", 1, []string{"no Service shop/pods is known; headless Services, and those of another proxy, are not read"}},
		{"trace --from fd00::7 --to shop/two:http", 1, []string{"To   [fd00:96::12]:80/TCP", "Verdict: refused"}},
		{"trace --from 10.244.1.9 --to shop/two:http", 0, []string{"To   10.96.0.12:80/TCP", "Verdict: sent to 10.244.1.6:8080"}},
		{"trace --from fd00::7 --to shop/web", 2, []string{"Service shop/web has no address of IPv6 here: fairlead explain shop/web shows the reason"}},
		{"trace --from fd00::7 --to 10.96.0.10:80", 2, []string{"the addresses are of different families"}},
	})
	if _, out := run(t, "explain", "shop/two", "--from", "fd00::7"); strings.Contains(out, "10.96.0.12") {
		t.Errorf("a client of IPv6 is told of addresses of IPv4:\n%s", out)
	}
	p.terminate()
}

// TestWhatWaitsIsSaid: a change that has come, and that the agent writes only after its pause, is told from one that is in the kernel.
func TestWhatWaitsIsSaid(t *testing.T) {
	dir := folder(t, webService)
	p := begin(t, agentArgs(dir, "--iptables-min-sync-period", "10m", "--iptables-sync-period", "20m")...)
	p.says("in sync")
	const waits = "objects are pending"
	if _, out := run(t, "explain", "shop/web"); strings.Contains(out, waits) {
		t.Errorf("nothing waits:\n%s", out)
	}
	writeManifest(t, dir, strings.Replace(webService, "10.244.1.5", "10.244.1.6", 1))
	eventually(t, "the change is there, and waits", func() error {
		if _, out := run(t, "explain", "shop/web"); !strings.Contains(out, "10.244.1.6:8080") || !strings.Contains(out, waits) {
			return errors.New(out)
		}
		return nil
	})
	p.terminate()
}
