package takeover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
)

// OnlyMode tells what is left of other modes, and of kube-proxy, beside a mode of the kit.
func OnlyMode(t *testing.T, node *netlab.Host, mode string) error {
	t.Helper()
	tables := Shell(t, node, "nft list tables")
	if strings.Contains(tables, "fairlead") != (mode == "nftables") || strings.Contains(tables, "kube-proxy") {
		return fmt.Errorf("in %s mode, tables: %s", mode, tables)
	}
	for _, backend := range []string{"nft", "legacy"} {
		rules := Shell(t, node, fmt.Sprintf("for p in iptables ip6tables; do $p-%s-save 2>/dev/null; done", backend))
		if has := strings.Contains(rules, "KUBE-"); has != (mode == "iptables-"+backend) {
			return fmt.Errorf("in %s mode, chains in iptables-%s: %t", mode, backend, has)
		}
		if strings.Contains(rules, "KUBE-SEP-") || strings.Contains(rules, "KUBE-FIREWALL") {
			return fmt.Errorf("in %s mode, iptables-%s holds chains of kube-proxy", mode, backend)
		}
	}
	if mode != "iptables-nft" && strings.Contains(tables, "nat") {
		return fmt.Errorf("in %s mode, empty tables are left: %s", mode, tables)
	}
	return nil
}
