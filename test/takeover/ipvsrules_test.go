package takeover_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestRulesOfKubeProxysIPVSMode checks that the iptables chains, the ipsets and the device that kube-proxy 1.36's ipvs mode leaves are removed when
// an agent serves, on either backend. kube-proxy's virtual servers need a kernel with IPVS: see TestTakeoverIPVS.
func TestRulesOfKubeProxysIPVSMode(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin := binary(t)
	rules, err := filepath.Abs(filepath.Join("testdata", "kube-proxy-ipvs.rules"))
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"nft", "legacy"} {
		for _, mode := range modes {
			t.Run(backend+" to "+mode, func(t *testing.T) {
				lab := newLab(t)
				node := lab.Node()
				takeover.Shell(t, node, `ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.10/32 dev kube-ipvs0
for s in CLUSTER-IP LOAD-BALANCER NODE-PORT-SCTP-HASH; do ipset create KUBE-$s hash:ip,port; done
for s in NODE-PORT-TCP NODE-PORT-UDP HEALTH-CHECK-NODE-PORT; do ipset create KUBE-$s bitmap:port range 0-65535; done
for s in NODE-PORT-LOCAL-SCTP-HAS LOAD-BALANCER-SOURCE-CID; do ipset create KUBE-6-$s hash:ip,port family inet6; done # as kube-proxy cuts them
ipset create KUBE-LOOP-BACK hash:ip,port,ip; ipset create KUBE-IPVS-IPS hash:ip; ipset create MINE hash:ip
ipset add KUBE-NODE-PORT-TCP 30080; ipset add KUBE-NODE-PORT-SCTP-HASH 172.18.0.2,sctp:30090
iptables-`+backend+`-restore --noflush <`+rules)
				agent := start(t, bin, kit.Setup{Lab: lab, Mode: mode, Files: []kit.File{{Name: "web.yaml", Data: serving(1)}}})
				takeover.Eventually(t, "nothing of kube-proxy is left", func() error {
					if err := takeover.OnlyMode(t, node, mode); err != nil {
						return err
					}
					left := takeover.Shell(t, node, "ipset list -n; ip -br link show kube-ipvs0 2>&1 || true; iptables-nft-save 2>/dev/null | grep 'kube-proxy ' || true; "+
						"iptables-legacy-save 2>/dev/null | grep 'kube-proxy ' || true")
					if left != "MINE\nDevice \"kube-ipvs0\" does not exist.\n" {
						return errors.New(left)
					}
					return nil
				})
				answers(t, lab.Client(), []string{"pod-a1", "pod-b1"})
				if err := agent.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
