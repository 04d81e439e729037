package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	scaled "github.com/fairlead/fairlead/test/patience"
)

// kept is a Service whose endpoints see their clients' addresses, and whose connections go on for ever when an endpoint has gone.
const kept = `apiVersion: v1
kind: Service
metadata: {name: kept, namespace: demo, annotations: {fairlead.dev/source-address: client, fairlead.dev/endpoint-grace: never}}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: ["10.96.0.10", "fd00:10:96::10"]
  ipFamilies: [IPv4, IPv6]
  ports: [{name: p, protocol: TCP, port: 80, targetPort: 8080}]
`

const keptSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kept-%s, namespace: demo, labels: {kubernetes.io/service-name: kept}}
addressType: %s
ports: [{name: p, protocol: TCP, port: 8080}]
endpoints:
- {addresses: ["%s"], nodeName: node-a, conditions: {ready: true}}
`

// keptNode is a node whose agent keeps the clients' addresses, and a client.
type keptNode struct {
	*testing.T
	lab   *netlab.Lab
	dir   string
	vips  [2]netip.AddrPort
	flows []*netlab.Flow
}

func newKeptNode(t *testing.T) *keptNode {
	t.Helper()
	n := &keptNode{T: t, dir: t.TempDir(), vips: [2]netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:80"), netip.MustParseAddrPort("[fd00:10:96::10]:80")}}
	var err error
	if n.lab, err = netlab.New(t.Context(), netlab.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.lab.Close(); err != nil {
			t.Error(err)
		}
	})
	n.write("service.yaml", kept)
	return n
}

// begin starts an agent on the node.
func (n *keptNode) begin() (p *process) {
	n.Helper()
	if err := n.lab.Node().Do(func() error {
		p = begin(n.T, "run", "--proxy-mode", "userspace", "--userspace-addresses", "service", "--userspace-endpoint-grace", "500ms",
			"--manifests", n.dir, "--hostname-override", "node-a", "--takeover")
		return nil
	}); err != nil {
		n.Fatal(err)
	}
	return p
}

// write puts a file in place whole.
func (n *keptNode) write(name, text string) {
	n.Helper()
	tmp := filepath.Join(n.dir, ".tmp")
	if err := errors.Join(os.WriteFile(tmp, []byte(text), 0o644), os.Rename(tmp, filepath.Join(n.dir, name))); err != nil {
		n.Fatal(err)
	}
}

// endpoint makes a pod the only endpoint, and waits until a new connection meets it in the client's name.
func (n *keptNode) endpoint(pod string) {
	n.Helper()
	h, err := n.lab.Host(pod)
	if err != nil {
		n.Fatal(err)
	}
	n.write("slices.yaml", fmt.Sprintf(keptSlice+"---\n"+keptSlice, "4", "IPv4", h.Addrs.V4, "6", "IPv6", h.Addrs.V6))
	n.meet(pod, func(r netlab.Reply) bool { return r.Backend == pod && r.Preserved() })
}

// meet waits until new connections in both families end well.
func (n *keptNode) meet(what string, well func(netlab.Reply) bool) {
	n.Helper()
	for _, vip := range n.vips {
		eventually(n.T, "a new connection meets "+what, func() error {
			if r := n.lab.Client().Ask(n.limit(), netlab.TCP, vip); !well(r) {
				return fmt.Errorf("%s: %v, %w", vip, r, r.Err)
			}
			return nil
		})
	}
}

// limit bounds one question.
func (n *keptNode) limit() context.Context {
	ctx, stop := context.WithTimeout(n.Context(), scaled.Of(30*time.Second))
	n.Cleanup(stop)
	return ctx
}

// open opens a connection in each family.
func (n *keptNode) open() {
	n.Helper()
	for _, vip := range n.vips {
		f, err := n.lab.Client().Open(n.limit(), netlab.TCP, vip)
		if err != nil {
			n.Fatal(err)
		}
		n.Cleanup(f.Close)
		n.flows = append(n.flows, f)
	}
}

// liveOn asks over the connections for a while: as long as it takes to find out whether what they need goes.
func (n *keptNode) liveOn(when string, rounds int) {
	n.Helper()
	for range rounds {
		for i, f := range n.flows {
			if r := f.Ask(n.limit()); r.Outcome != netlab.Answered || r.Backend != "pod-a1" || !r.Preserved() {
				n.Fatalf("%s, the connection to %s meets %v, %v", when, n.vips[i], r, r.Err)
			}
		}
		time.Sleep(100 * time.Millisecond) // nobody tells that something does not happen
	}
}

// TestConnectionsInTheClientsNameLiveOn: what connections in the clients' name need of the kernel stays for as long as there are any,
// whatever else has gone: their endpoint, the agent that made them, and at last their Service.
func TestConnectionsInTheClientsNameLiveOn(t *testing.T) {
	n := newKeptNode(t)
	old := n.begin()
	n.endpoint("pod-a1")
	n.open()
	n.liveOn("at the beginning", 1)
	n.endpoint("pod-a2")
	n.liveOn("without the endpoint", 20) // four times the agent's grace
	next := n.begin()
	next.says("took over")
	n.liveOn("under the next agent", 10)
	if err := os.Remove(filepath.Join(n.dir, "service.yaml")); err != nil {
		t.Fatal(err)
	}
	n.meet("nobody", func(r netlab.Reply) bool { return r.Outcome == netlab.Refused || r.Outcome == netlab.Unreachable })
	n.liveOn("without the Service", 10)
	for _, f := range n.flows {
		f.Close()
	}
	if c := old.code(); c != 0 {
		t.Errorf("the first agent ends with status %d", c)
	}
}
