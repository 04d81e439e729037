package app

import (
	"net"
	"strings"
	"testing"
)

const takenService = `
---
apiVersion: v1
kind: Service
metadata: {name: taken, namespace: shop}
spec: {clusterIP: 10.96.0.77, clusterIPs: [10.96.0.77], ports: [{name: http, port: 8077, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: taken-1, namespace: shop, labels: {kubernetes.io/service-name: taken}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.7], conditions: {ready: true}}]
`

// A Service whose port another program has is a problem by name, and status is not well.
func TestUnopenedSocketIsAProblem(t *testing.T) {
	other, err := net.Listen("tcp", "127.96.0.77:8077")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // of the test
	p := begin(t, agentArgs(folder(t, takenService), "--proxy-mode", "userspace", "--userspace-addresses", "loopback")...)
	p.says("in sync")
	code, out := run(t, "status")
	for _, want := range []string{"Service shop/taken is not served at 127.96.0.77:8077/TCP", "address already in use", "NOT WELL"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if code != 1 {
		t.Errorf("status %d", code)
	}
	p.terminate()
}
