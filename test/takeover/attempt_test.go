package takeover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestAttemptFromBefore covers a client that tries to connect while no rule translates its packets, as in the gap that another proxy leaves when it
// changes its mode. The kernel no longer translates that flow, and the agent's rules reject untranslated packets; but the client's next SYN, after a
// second, must reach the Service.
func TestAttemptFromBefore(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin := binary(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			lab := newLab(t)
			node := lab.Node()
			// A rule that matches the connection state makes the kernel track connections, as any proxy's rules do.
			takeover.Shell(t, node, "nft add table ip seen; nft 'add chain ip seen c { type nat hook prerouting priority 0; }'; nft add rule ip seen c ct state new counter")
			ctx, cancel := context.WithTimeout(t.Context(), patience.Of(time.Minute))
			defer cancel()
			attempt := make(chan netlab.Reply, 1)
			go func() { attempt <- lab.Client().Ask(ctx, netlab.TCP, takeover.ClusterIP) }()
			takeover.Eventually(t, "a SYN went through the node", func() error {
				if takeover.Shell(t, node, "conntrack -L -p tcp --state SYN_SENT --orig-dst 10.96.0.10 2>/dev/null") == "" {
					return errors.New("none")
				}
				return nil
			})
			agent := start(t, bin, kit.Setup{Lab: lab, Mode: mode, Files: []kit.File{{Name: "web.yaml", Data: takeover.Manifests}}})
			if reply := <-attempt; reply.Outcome != netlab.Answered {
				t.Errorf("%s (%v)\n%s\n%s", reply, reply.Err, agent.Log(), takeover.Rules(t, node))
			}
			if err := agent.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
