package takeover_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// web and sticky are the addresses of the Services of these clusters, whose endpoint answers.
var (
	web    = netip.MustParseAddrPort("10.96.0.10:80")
	sticky = netip.MustParseAddrPort("10.96.0.11:80")
)

// service returns the manifest of a Service with one endpoint.
func service(name, address, more, endpoint string) kit.File {
	return kit.File{Name: name + ".yaml", Data: fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: demo}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], %[3]sports: [{name: http, port: 80, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: demo, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [%[4]s]}]
`, name, address, more, endpoint)}
}

// broken is a cluster with a fault that the agent's commands must explain.
type broken struct {
	lab   *netlab.Lab
	bin   string
	agent *kit.Fairlead
}

// newBroken starts an agent that does not remove the changes of a test: its search for rules of other proxies may run late.
func newBroken(t *testing.T, mode string, env ...string) *broken {
	t.Helper()
	b := &broken{lab: newLab(t), bin: binary(t)}
	b.agent = &kit.Fairlead{Binary: b.bin, Env: env}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent:\n%s", b.agent.Log())
		}
	})
	if err := b.agent.Start(t.Context(), kit.Setup{Lab: b.lab, Mode: mode, Flags: []string{"--no-takeover"}, Files: []kit.File{service("web", "10.96.0.10", "", "10.244.1.11")}}); err != nil {
		t.Fatal(err)
	}
	b.answers(t, web, true)
	b.says(t, true, "In kernel    yes", "status")
	return b
}

// answers checks that a request is answered, or that it is not.
func (b *broken) answers(t *testing.T, to netip.AddrPort, want bool) {
	t.Helper()
	takeover.Eventually(t, fmt.Sprintf("%s answers: %t", to, want), func() error {
		if got := ask(t, b.lab.Client(), to); (got == netlab.Answered) != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// firstScreen is the number of lines of an answer that are visible at once.
const firstScreen = 24

// says checks that a command prints a text within its first screen, and whether it exits with code 0.
func (b *broken) says(t *testing.T, well bool, want string, args ...string) {
	t.Helper()
	takeover.Eventually(t, fmt.Sprintf("fairlead %s says %q", strings.Join(args, " "), want), func() error {
		out, err := b.lab.Node().Run(t.Context(), b.bin, args...)
		lines := strings.SplitAfter(out, "\n")
		if seen := strings.Join(lines[:min(len(lines), firstScreen)], ""); (err == nil) != well || !strings.Contains(seen, want) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}

// TestStaleRulesOfKubeProxy covers stale rules that kube-proxy registered after the agent's. They send connections to an endpoint that no longer
// exists. The agent names them and the command that removes them. It does not report its own rules as foreign.
func TestStaleRulesOfKubeProxy(t *testing.T) {
	const table = "table ip kube-proxy (rules of kube-proxy): "
	for mode, order := range map[string]string{
		"nftables": "TAKES PRECEDENCE (its hooks were registered later)", "iptables-nft": "TAKES PRECEDENCE (its hooks were registered later)",
		"iptables-legacy": "the order of the hooks is unknown",
	} {
		t.Run(mode, func(t *testing.T) {
			b := newBroken(t, mode)
			b.says(t, true, "other programs at the same hooks: no rule in nftables", "audit", "--foreign")
			takeover.Shell(t, b.lab.Node(), "nft 'table ip kube-proxy { chain nat-prerouting { type nat hook prerouting priority -100; ip daddr 10.96.0.10 tcp dport 80 dnat to 10.244.1.99:8080; }; }'")
			b.answers(t, web, false)
			b.says(t, false, table+order+"; remove with: fairlead cleanup --kube-proxy", "status")
			b.says(t, false, "table ip kube-proxy, chain nat-prerouting (nat, prerouting, priority -100)", "audit", "--foreign")
			takeover.Shell(t, b.lab.Node(), b.bin+" cleanup --kube-proxy")
			b.answers(t, web, true)
			b.says(t, true, "In kernel    yes", "status")
		})
	}
}

// TestDropRuleOfAStranger covers a firewall that drops packets that the agent's rules have translated. The audit names the rule and what it drops.
func TestDropRuleOfAStranger(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables-nft"} {
		t.Run(mode, func(t *testing.T) {
			b := newBroken(t, mode)
			takeover.Shell(t, b.lab.Node(), "nft 'table inet them { chain watch { type filter hook forward priority 5; ip daddr 10.244.1.11 drop; }; }'")
			b.answers(t, web, false)
			b.says(t, false, "table inet them, chain watch (filter, forward, priority 5): drop packets to 10.244.1.11/32: an endpoint of Service ", "audit", "--foreign") // both modes have it
			takeover.Shell(t, b.lab.Node(), "nft delete table inet them")
			b.answers(t, web, true)
		})
	}
}

// TestDeadAgent checks that the rules stay unchanged without an agent, so that a change has no effect, and that status reports that no agent runs.
func TestDeadAgent(t *testing.T) {
	b := newBroken(t, "nftables")
	b.agent.Kill()
	b.says(t, false, "no agent runs in this network namespace", "status")
	b.answers(t, web, true)
	if err := b.agent.Apply(t.Context(), []kit.File{service("web", "10.96.0.10", "", "10.244.1.99")}); err != nil {
		t.Fatal(err)
	}
	b.answers(t, web, true) // by the endpoint that the Service no longer has
	if err := b.agent.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.answers(t, web, false)
	b.says(t, true, "In kernel    yes", "status")
}

// TestRefusedService covers an iptables extension that is missing on the node, so that a Service that needs it cannot be written; the other Services
// are unaffected.
func TestRefusedService(t *testing.T) {
	for _, mode := range []string{"iptables-legacy", "iptables-nft"} {
		t.Run(mode, func(t *testing.T) {
			extensions := copyOfExtensions(t)
			b := newBroken(t, mode, "XTABLES_LIBDIR="+extensions)
			if err := os.Remove(filepath.Join(extensions, "libxt_recent.so")); err != nil {
				t.Fatal(err)
			}
			if err := b.agent.Apply(t.Context(), []kit.File{service("sticky", "10.96.0.11", "sessionAffinity: ClientIP, ", "10.244.1.11")}); err != nil {
				t.Fatal(err)
			}
			b.says(t, false, "Couldn't load match `recent'", "status")
			b.says(t, false, "Service demo/sticky is not in the desired state: the kernel rejected chain nat KUBE-SVC-", "explain", "demo/sticky")
			b.says(t, true, "the kernel state differs from the decision below: rejected chain nat KUBE-SVC-", "trace", "--from", "172.18.0.9", "--to", "demo/sticky")
			b.answers(t, sticky, false)
			b.answers(t, web, true)
			b.says(t, true, "Service demo/web is forwarded, to 1 endpoint", "explain", "demo/web")
		})
	}
}

// copyOfExtensions creates a folder of iptables' extensions that a test may change.
func copyOfExtensions(t *testing.T) (folder string) {
	t.Helper()
	list, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil || len(list) == 0 {
		t.Fatalf("no extensions of iptables: %v", err)
	}
	folder = t.TempDir()
	for _, path := range list {
		if err := os.Symlink(path, filepath.Join(folder, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestFullConntrack covers a full connection table on the node: a new connection fails.
func TestFullConntrack(t *testing.T) {
	b := newBroken(t, "nftables")
	most := takeover.Room(t, b.lab.Node())
	if most > 600_000 {
		t.Skipf("the table has room for %d", most) // each entry takes a kilobyte of the machine's memory
	}
	takeover.Fill(t, b.lab.Node(), most)
	b.says(t, false, "conntrack is full: ", "status")
	b.answers(t, web, false)
	if err := b.lab.FlushConntrack("node-a"); err != nil {
		t.Fatal(err)
	}
	b.answers(t, web, true)
	b.says(t, true, "In kernel    yes", "status")
	if err := b.agent.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
