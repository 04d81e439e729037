package intercept

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// manifests are what the whole agent proxies: the cluster's DNS in a pod of the
// other node, and a Service whose name only this node's server knows.
func manifests(t *testing.T, backend netlab.Addrs) string {
	t.Helper()
	const text = `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: %[1]s, clusterIPs: [%[1]s, "%[2]s"], ipFamilies: [IPv4, IPv6], ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: %[3]s, ports: [{port: 80}]}
`
	const slice = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-%[1]s, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: %[1]s
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: ["%[2]s"]}]
`
	all := fmt.Sprintf(text, vips[0], vips[1], ours) +
		strings.ReplaceAll(fmt.Sprintf(slice, "IPv4", backend.V4), "kube-dns-IPv4", "kube-dns-4") +
		strings.ReplaceAll(fmt.Sprintf(slice, "IPv6", backend.V6), "kube-dns-IPv6", "kube-dns-6")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func agentBinary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("FAIRLEAD_BIN")
	if bin == "" {
		bin = "../../../bin/fairlead"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatal("the agent is not built: make build")
	}
	return bin
}

// TestAgent: the whole agent in each kernel mode; killed in a loop of lookups.
func TestAgent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, for network namespaces")
	}
	bin := agentBinary(t)
	for _, mode := range []string{"nftables", "iptables", "ipvs"} {
		t.Run(mode, func(t *testing.T) {
			lab, err := netlab.New(t.Context(), netlab.Config{PodsPerNode: 1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lab.Close() })
			pod, err := lab.Host("pod-a1")
			if err != nil {
				t.Fatal(err)
			}
			other, err := lab.Host("pod-b1")
			if err != nil {
				t.Fatal(err)
			}
			clusterDNS(t, other)
			a := &wholeAgent{bin: bin, mode: mode, dir: manifests(t, other.Addrs), node: lab.Node()}
			live(t, a, pod)
		})
	}
}

// wholeAgent starts fairlead in a node's namespace.
type wholeAgent struct {
	bin, mode, dir string
	node           *netlab.Host
}

func (a *wholeAgent) start(t *testing.T) *netlab.Process {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(a.bin, "--manifests", a.dir, "--proxy-mode", a.mode, "--hostname-override", "node-a", "--cluster-cidr", netlab.ClusterCIDR4+","+netlab.ClusterCIDR6,
		"--dns-address", local[0].String()+","+local[1].String(), "--dns-intercept", "--dns-status-for-all", "--healthz-bind-address", "", "--metrics-bind-address", "")
	cmd.Stdout, cmd.Stderr = f, f
	p, err := a.node.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if b, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("agent:\n%s", b)
		}
	})
	for end := time.Now().Add(patience.Of(time.Minute)); ; { // until it is at work, or finds that it cannot
		select {
		case <-p.Done():
			b, _ := os.ReadFile(log)
			if strings.Contains(string(b), "proxy mode") || strings.Contains(string(b), "unsupported") || strings.Contains(string(b), "unknown mode") || strings.Contains(string(b), "not built") {
				t.Skipf("mode %s is not to be had here: %s", a.mode, b)
			}
			t.Fatalf("the agent ended: %s", b)
		case <-time.After(10 * time.Millisecond):
		}
		if b, err := os.ReadFile(log); err == nil && strings.Contains(string(b), "DNS queries are intercepted") {
			return p
		}
		if time.Now().After(end) {
			t.Fatal("the agent intercepts nothing")
		}
	}
}

// live takes the whole agent through its life.
func live(t *testing.T, a *wholeAgent, pod *netlab.Host) {
	p := a.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	var list []*looker
	for _, vip := range vips {
		list = append(list, lookersOf(pod, vip)...)
	}
	for _, l := range list {
		wg.Go(func() { l.run(ctx) })
	}
	answeredBy(t, "agent starts", list, ours)
	// The pod's name server is the cluster's address; the reasons show that this node answers.
	for _, vip := range vips {
		args := []string{"wait", "service/kube-dns", "-n", "kube-system", "--server", vip.String(), "--timeout", "5s", "--connect", "53", "--endpoints"}
		if out, err := pod.Run(t.Context(), a.bin, append(args, "1")...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if out, err := pod.Run(t.Context(), a.bin, append(args, "2", "--timeout", "0s")...); err == nil || !strings.Contains(out, "1 more are in no EndpointSlice") {
			t.Errorf("got %v\n%s", err, out)
		}
	}
	for range 3 {
		p.Kill()
		if n := answeredBy(t, "kill -9", list, theirs); n > 1 {
			t.Errorf("%d look-ups were lost", n)
		}
		p = a.start(t)
		answeredBy(t, "agent comes back", list, ours)
	}
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if answeredBy(t, "agent hangs", list, theirs); time.Since(begin) > patience.Of(20*time.Second) { // lifetime, and a lookup that is under way
		t.Errorf("queries went to the hanging agent for %s", time.Since(begin))
	}
}

func lookersOf(pod *netlab.Host, vip netip.Addr) []*looker {
	return []*looker{
		{what: "new socket to " + vip.String(), pod: pod, vip: vip}, {what: "one socket to " + vip.String(), pod: pod, vip: vip, keep: true},
		{what: "TCP to " + vip.String(), pod: pod, vip: vip, tcp: true},
	}
}
