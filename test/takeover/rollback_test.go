package takeover_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestRollBackWithoutCleanup stops an agent in iptables mode and starts upstream's kube-proxy on the same backend, without `fairlead cleanup`. A
// Service is deleted in between: kube-proxy deletes that Service's chain in its first sync, so no chain that the agent left may jump to it. No
// request to the other Service is lost.
func TestRollBackWithoutCleanup(t *testing.T) {
	if _, err := os.Stat(kubeProxyProgram()); err != nil || testing.Short() {
		t.Skip("needs kube-proxy: bash test/cluster/build.sh kube-proxy; go test -run TestRollBackWithoutCleanup ./test/takeover")
	}
	t.Setenv("TMPDIR", t.TempDir())
	bin, lab := binary(t), newLab(t)
	upstream := newKubeProxy(t, lab)
	gone := strings.NewReplacer("name: web", "name: gone", "10.96.0.10", "10.96.0.99", "fd00:10:96::10", "fd00:10:96::99",
		"30080", "30099", "203.0.113.10", "203.0.113.99").Replace(serving(1))
	for _, mode := range []string{"iptables-legacy", "iptables-nft"} {
		t.Run(mode, func(t *testing.T) {
			node := lab.Node()
			agent := start(t, bin, kit.Setup{Lab: lab, Mode: mode,
				Files: []kit.File{{Name: "web.yaml", Data: serving(1)}, {Name: "gone.yaml", Data: gone}}})
			defer agent.Kill()
			tr := takeover.Start(t, lab.Client())
			tr.More(t, 10)
			agent.Kill()
			upstream.start(t, mode)
			defer upstream.stop()
			tr.More(t, 20)
			tr.Stop()
			tr.Check(t, "with the way back to kube-proxy")
			takeover.Eventually(t, "no chain of the agent jumps to a Service", func() error { return noDispatch(t, node, mode) })
			if t.Failed() {
				t.Log(takeover.Rules(t, node))
			}
			upstream.stop()
			if out, err := node.Run(t.Context(), bin, "cleanup"); err != nil {
				t.Fatalf("cleanup: %v\n%s", err, out)
			}
		})
	}
}

// noDispatch returns an error that quotes the rules of dispatch chains that are left in the nat tables.
func noDispatch(t *testing.T, node *netlab.Host, mode string) error {
	backend := strings.TrimPrefix(mode, "iptables-")
	out := takeover.Shell(t, node, "for p in iptables ip6tables; do $p-"+backend+"-save -t nat 2>/dev/null | grep KUBE-SVC-T- || true; done")
	if out != "" {
		return errors.New(out)
	}
	return nil
}
