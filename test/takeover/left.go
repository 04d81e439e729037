package takeover

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
)

// OnlyMode returns an error if rules of other modes or of kube-proxy are left besides a mode of the kit. IPVS virtual servers that only drain are
// ignored: they stay until the last of their connections has ended.
func OnlyMode(t *testing.T, node *netlab.Host, mode string) error {
	t.Helper()
	tables := Shell(t, node, "nft list tables")
	has := func(name string) bool { return strings.Contains(tables+"\n", " "+name+"\n") }
	if has("fairlead") != (mode == "nftables") || has("kube-proxy") {
		return fmt.Errorf("in %s mode, tables: %s", mode, tables)
	}
	if err := servers(t, node, mode, has("fairlead-ipvs")); err != nil {
		return err
	}
	for _, backend := range []string{"nft", "legacy"} {
		rules := Shell(t, node, fmt.Sprintf("for p in iptables ip6tables; do $p-%s-save 2>/dev/null; done", backend))
		if has := strings.Contains(rules, "KUBE-"); has != (mode == "iptables-"+backend) {
			return fmt.Errorf("in %s mode, chains in iptables-%s: %t", mode, backend, has)
		}
		if theirs.MatchString(rules) {
			return fmt.Errorf("in %s mode, iptables-%s holds chains of kube-proxy", mode, backend)
		}
	}
	if mode != "iptables-nft" && strings.Contains(tables, "nat") {
		return fmt.Errorf("in %s mode, empty tables: %s", mode, tables)
	}
	return nil
}

// theirs matches names that only kube-proxy uses, in its iptables mode or in its ipvs mode.
var theirs = regexp.MustCompile("KUBE-(SEP-|FIREWALL|IPVS-|LOAD-BALANCER|NODE-PORT|SOURCE-RANGES)")

// servers checks the objects that ipvs modes create.
func servers(t *testing.T, node *netlab.Host, mode string, table bool) error {
	t.Helper()
	list := Shell(t, node, "cat /proc/net/ip_vs 2>/dev/null || true")
	weights := serving.FindAllString(list, -1)
	if mode == "ipvs" {
		if !table || len(weights) == 0 {
			return fmt.Errorf("in ipvs mode, our table: %t; virtual servers:\n%s", table, list)
		}
		return nil
	}
	if len(weights) > 0 {
		return fmt.Errorf("in %s mode, virtual servers take new connections:\n%s", mode, list)
	}
	return nil
}

// serving matches a real server with a weight in the kernel's own list:
//
//	-> 0AF4010B:1F90      Masq    1      0          0
var serving = regexp.MustCompile(`(?m)^\s+->\s+\S+\s+\S+\s+[1-9]`)
