package takeover_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestLiveKubeProxy starts and restarts an agent while upstream's kube-proxy runs. kube-proxy's rules stay, no request is lost, and status names it.
// After it has stopped, none of its rules is left. Where both write the same chains, the agent takes them over and repairs the changes of kube-proxy.
func TestLiveKubeProxy(t *testing.T) {
	if _, err := os.Stat(kubeProxyProgram()); err != nil || testing.Short() {
		t.Skip("takes half a minute, and kube-proxy: bash test/cluster/build.sh kube-proxy; go test -run TestLiveKubeProxy ./test/takeover")
	}
	t.Setenv("TMPDIR", t.TempDir())
	bin, lab := binary(t), newLab(t)
	theirs := newKubeProxy(t, lab)
	for _, pair := range livePairs() {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) {
			node := lab.Node()
			theirs.start(t, pair[0])
			defer theirs.stop() // once more, in case the test ends early
			tr := takeover.Start(t, lab.Client())
			tr.More(t, 10)
			agent := start(t, bin, kit.Setup{Lab: lab, Mode: pair[1], Files: []kit.File{{Name: "web.yaml", Data: serving(1)}}})
			defer agent.Kill()
			says := func(want string) {
				takeover.Eventually(t, "the log says "+want, func() error {
					if !strings.Contains(agent.Log(), want) {
						return errors.New(agent.Log())
					}
					return nil
				})
			}
			says("kube-proxy runs in this network namespace")
			before := takeover.Shell(t, node, rulesOf(pair[0]))
			if err := agent.Restart(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			takeover.Eventually(t, "status names kube-proxy", func() error {
				out, err := node.Run(t.Context(), bin, "status")
				if err == nil || !strings.Contains(out, "kube-proxy runs in this network namespace (process ") || strings.Contains(out, "cleanup --kube-proxy") {
					return errors.New(out)
				}
				return nil
			})
			tr.More(t, 50)
			if after := takeover.Shell(t, node, rulesOf(pair[0])); pair[0] != pair[1] && after != before {
				t.Errorf("the rules of a kube-proxy that runs were\n%s\nand are\n%s", before, after)
			}
			theirs.stop()
			says("kube-proxy has stopped")
			takeover.Eventually(t, "nothing of kube-proxy is left", func() error { return takeover.OnlyMode(t, node, pair[1]) })
			tr.More(t, 20)
			tr.Stop()
			tr.Check(t, pair[0]+" to "+pair[1])
			if text := agent.Log(); strings.Contains(text, "came back") || strings.Contains(text, "cannot remove rules that another proxy left") {
				t.Error("rules came back, or were not removed at once")
			}
			if t.Failed() {
				t.Logf("%s\n%s", agent.Log(), takeover.Rules(t, node))
			}
			if err := agent.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// livePairs returns pairs of modes: kube-proxy's and the agent's.
func livePairs() [][2]string {
	return [][2]string{{"iptables-legacy", "iptables-legacy"}, {"iptables-nft", "iptables-nft"}, {"iptables-legacy", "iptables-nft"}, {"nftables", "iptables-legacy"}}
}

// rulesOf returns the command that prints the rules of kube-proxy in a mode.
func rulesOf(mode string) string {
	if backend, is := strings.CutPrefix(mode, "iptables-"); is {
		return "for p in iptables ip6tables; do $p-" + backend + "-save | grep KUBE- || true; done"
	}
	return "nft -s list table ip kube-proxy; nft -s list table ip6 kube-proxy"
}
