package takeover_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// modes are those of the kit: iptables with each of its two backends.
var modes = []string{"nftables", "iptables-nft", "iptables-legacy"}

// newLab makes a lab that goes with the test.
func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes network namespaces and needs root: run `make test` as root")
	}
	lab, err := netlab.New(t.Context(), netlab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	return lab
}

// binary is the agent to test: FAIRLEAD_BIN, or one built now.
func binary(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("FAIRLEAD_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "fairlead")
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin, "github.com/fairlead/fairlead/cmd/fairlead")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	return bin
}

// start runs the agent until the test ends, and returns when it is in sync.
func start(t *testing.T, bin string, s kit.Setup) *kit.Fairlead {
	t.Helper()
	agent := &kit.Fairlead{Binary: bin}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent in %s mode:\n%s", s.Mode, agent.Log())
		}
	})
	if err := agent.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return agent
}

// sh runs a shell command inside a host and gives what it prints.
func sh(t *testing.T, h *netlab.Host, command string) string {
	t.Helper()
	out, err := h.Run(t.Context(), "sh", "-ec", command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const manifests = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: test}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ipFamilies: [IPv4]
  ports:
  - {name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: u, protocol: UDP, port: 80, targetPort: 8080, nodePort: 30080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: test, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: t, protocol: TCP, port: 8080}, {name: u, protocol: UDP, port: 8080}]
endpoints:
- {addresses: [10.244.1.11], conditions: {ready: true}, nodeName: node-a}
- {addresses: [10.244.2.11], conditions: {ready: true}, nodeName: node-b}
`
