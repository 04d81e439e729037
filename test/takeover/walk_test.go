package takeover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// walk is a sequence of modes that contains each change from one mode to another, and back.
var walk = []string{"nftables", "iptables-nft", "iptables-legacy", "nftables", "iptables-legacy", "iptables-nft", "nftables"}

// TestWalk changes the mode of the same node repeatedly while clients send requests: no request is lost, no rule of the old mode is left, and cleanup
// restores the state before the first agent.
func TestWalk(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin := binary(t)
	lab := newLab(t)
	node := lab.Node()
	found := listing(t, node)
	var agent *kit.Fairlead
	var tr *takeover.Traffic
	for i, mode := range walk {
		step := fmt.Sprintf("step %d, to %s", i, mode)
		if agent != nil {
			if err := agent.Halt(t.Context()); err != nil {
				t.Fatal(err)
			}
			tr.More(t, 20)
		}
		agent = start(t, bin, kit.Setup{Lab: lab, Mode: mode, Flags: []string{"--dns-address", "169.254.20.10"},
			Files: []kit.File{{Name: "web.yaml", Data: serving(1)}}})
		takeover.Eventually(t, step+": nothing of the old mode is left", func() error { return takeover.OnlyMode(t, node, mode) })
		if tr == nil {
			tr = takeover.Start(t, lab.Client())
		}
		tr.More(t, 50)
		tr.Check(t, step)
		if i > 0 && !strings.Contains(agent.Log(), "removed rules that another proxy left") {
			t.Errorf("%s: the log does not say what was removed:\n%s", step, agent.Log())
		}
	}
	tr.Stop()
	tr.Check(t, "the end")
	endsWithoutATrace(t, agent, node, found)
	t.Logf("answered: %v", tr.Counts())
}

// TestStaleRulesDoNotServe checks a change of endpoints while no agent runs, before an agent in another mode starts. Stale rules of the old mode
// would still send new connections to the removed endpoints.
func TestStaleRulesDoNotServe(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin := binary(t)
	lab := newLab(t)
	var agent *kit.Fairlead
	for i, mode := range walk {
		if agent != nil {
			if err := agent.Halt(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n := i%3 + 1
		agent = start(t, bin, kit.Setup{Lab: lab, Mode: mode, Files: []kit.File{{Name: "web.yaml", Data: serving(n)}}})
		takeover.Eventually(t, "only rules of "+mode, func() error { return takeover.OnlyMode(t, lab.Node(), mode) })
		answers(t, lab.Client(), []string{fmt.Sprintf("pod-a%d", n), fmt.Sprintf("pod-b%d", n)})
	}
	if err := agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// serving returns manifests with one pod of each node as endpoints.
func serving(n int) string {
	s := strings.ReplaceAll(takeover.Manifests, "10.244.1.11", fmt.Sprintf("10.244.1.%d", 10+n))
	return strings.ReplaceAll(s, "10.244.2.11", fmt.Sprintf("10.244.2.%d", 10+n))
}

// endsWithoutATrace stops an agent and cleans up. A listing must then equal the one from before the agent's start.
func endsWithoutATrace(t *testing.T, agent *kit.Fairlead, node *netlab.Host, found string) {
	t.Helper()
	if err := agent.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if now := listing(t, node); now != found {
		t.Errorf("clean-up leaves\n%s\nwhere was\n%s", now, found)
	}
}

// listing returns all rules on the node, of the agent and of other programs.
func listing(t *testing.T, node *netlab.Host) string {
	t.Helper()
	return takeover.Shell(t, node, "nft list ruleset; cat /proc/sys/net/ipv4/conf/all/route_localnet; ip -o addr show dev lo; ipset list -n; "+
		"for b in legacy nft; do for p in iptables ip6tables; do $p-$b-save 2>&1 | grep KUBE- || true; done; done")
}

// answers sends 40 requests and checks that each is answered, by one of these pods.
func answers(t *testing.T, client *netlab.Host, pods []string) {
	t.Helper()
	for range 20 {
		for _, to := range []struct {
			proto netlab.Protocol
			node  bool
		}{{netlab.TCP, false}, {netlab.UDP, true}} {
			addr := takeover.ClusterIP
			if to.node {
				addr = takeover.NodePort
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			reply := client.Ask(ctx, to.proto, addr)
			cancel()
			if reply.Outcome != netlab.Answered || !slices.Contains(pods, reply.Backend) {
				t.Fatalf("%s to %s: %s, want one of %v", to.proto, addr, reply, pods)
			}
		}
	}
}
