package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestMigrate changes the mode of a running agent while clients send requests.
func TestMigrate(t *testing.T) {
	migrating(t, newLab(t), "nftables", []string{"iptables-nft", "iptables-legacy", "nftables", "iptables-legacy", "iptables-nft", "nftables"})
}

// migrating starts an agent in a mode and migrates it from mode to mode: no request is lost, streams live until the end, no rule of the old mode is
// left.
func migrating(t *testing.T, lab *netlab.Lab, from string, walk []string) {
	t.Setenv("TMPDIR", t.TempDir())
	bin, node := binary(t), lab.Node()
	warmUp(t, node, bin)
	found := listing(t, node)
	agent := start(t, bin, kit.Setup{Lab: lab, Mode: from, Flags: []string{"--ipvs-udp-timeout", "20s", "--ipvs-tcpfin-timeout", "5s"},
		Files: []kit.File{{Name: "web.yaml", Data: serving(1)}}})
	defer agent.Kill() // so that the next agent can start if this test ends early
	tr := takeover.Start(t, lab.Client())
	for i, mode := range walk {
		step := fmt.Sprintf("step %d, to %s", i, mode)
		migrate(t, node, bin, mode)
		takeover.Eventually(t, step+": nothing of the old mode is left but what drains", func() error { return takeover.OnlyMode(t, node, mode) })
		if i == 0 {
			tr.Open(t, " of "+mode)
		}
		tr.More(t, 20)
		if !tr.Check(t, step) {
			t.Fatalf("%s\n%s", agent.Log(), takeover.Rules(t, node))
		}
	}
	tr.Stop()
	tr.Check(t, "the end")
	takeover.Eventually(t, "virtual servers go with their last connection", func() error {
		if left := takeover.Shell(t, node, "nft list tables | grep fairlead-ipvs || true; ip -o link show kube-ipvs0 2>/dev/null || true"); left != "" {
			return errors.New(left)
		}
		return nil
	})
	endsWithoutATrace(t, agent, node, found)
	t.Logf("answered: %v", tr.Counts())
}

// migrate runs the command that changes the mode of a host's agent.
func migrate(t *testing.T, node *netlab.Host, bin, mode string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(time.Minute))
	defer cancel()
	if out, err := node.Run(ctx, bin, "migrate", "--to", mode); err != nil {
		t.Fatalf("migrate to %s: %v\n%s", mode, err, out)
	}
}

// warmUp makes the kernel load the modules that the modes need. In an emulated machine this takes longer than an agent waits.
func warmUp(t *testing.T, node *netlab.Host, bin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Of(time.Minute))
	defer cancel()
	out, err := node.Run(ctx, bin, "probe")
	t.Logf("%v\n%s", err, out)
}
