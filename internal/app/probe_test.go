package app

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/choose"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
)

// TestProbe: each mode is tried, and what is tried leaves nothing in this namespace, not
// even the empty tables that x_tables makes when it is asked for one.
func TestProbe(t *testing.T) {
	needBothBackends(t)
	if code, out := run(t, "cleanup"); code != 0 {
		t.Fatal(out)
	}
	before := tables(t)
	code, out := run(t, "probe", "-o", "json", "--services", "10000")
	var r choose.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("status %d, %v:\n%s", code, err, out)
	}
	works := map[string]bool{}
	for _, m := range r.Modes {
		works[m.Mode] = m.Works
		if m.Why == "" || m.Unsure {
			t.Errorf("%+v", m)
		}
	}
	if !works["nftables"] || !works["iptables-nft"] || !works["iptables-legacy"] || !works["userspace"] || len(works) != 5 {
		t.Errorf("works: %v", works)
	}
	if r.Recommended.Mode != "nftables" || r.Services != 10000 || r.Where != apart {
		t.Errorf("%+v", r)
	}
	if after := tables(t); after != before {
		t.Errorf("left is\n%s\nwhere was\n%s", after, before)
	}
	if code, out := run(t, "probe", "-o", "xml"); code != 2 {
		t.Errorf("status %d: %s", code, out)
	}
}

// TestAuto: the mode that is recommended is taken and told; a restart keeps the mode of
// which rules are here, and without any it is chosen afresh.
func TestAuto(t *testing.T) {
	needBothBackends(t)
	if code, out := run(t, "cleanup"); code != 0 { // what other tests left would be rules that are here
		t.Fatal(out)
	}
	dir := folder(t, webService)
	for _, step := range []struct {
		args []string
		say  string
	}{
		{[]string{"--proxy-mode", "iptables", "--iptables-backend", "legacy"}, "mode=iptables"},
		{[]string{"--proxy-mode", "auto"}, `msg="mode chosen by --proxy-mode auto" mode=iptables-legacy`},
		{[]string{"--proxy-mode", "nftables"}, "mode=nftables"},
		{[]string{"--proxy-mode", "auto"}, `msg="mode chosen by --proxy-mode auto" mode=nftables`},
	} {
		p := begin(t, agentArgs(dir, step.args...)...)
		p.says(step.say)
		p.says("in sync")
		if code, out := run(t, "status"); strings.Contains(out, "(auto)") != strings.Contains(step.say, "auto") || strings.Contains(out, "(default)") {
			t.Errorf("after %v status %d: %s", step.args, code, out)
		}
		if strings.Contains(step.say, "nftables") {
			legacyRulesGo(t)
		}
		p.terminate()
	}
}

// legacyRulesGo waits until none is left.
func legacyRulesGo(t *testing.T) {
	t.Helper()
	eventually(t, "the rules of iptables-legacy are gone", func() error {
		out, err := exec.Command("iptables-legacy-save").CombinedOutput()
		if err == nil && strings.Contains(string(out), "KUBE-") {
			return os.ErrExist
		}
		return err
	})
}

func needBothBackends(t *testing.T) {
	t.Helper()
	for _, b := range []kerneliptables.Backend{kerneliptables.NFT, kerneliptables.Legacy} {
		if _, err := kerneliptables.Installed(b); err != nil {
			t.Skipf("SKIPPED, not run: %v", err) // scripts/deps.sh installs both
		}
	}
}

// tables is what a look shows of everybody's tables.
func tables(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", "nft list ruleset; cat /proc/self/net/ip_tables_names /proc/self/net/ip6_tables_names; ip -o link").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestNoFlowtables: who may not try does not learn that the kernel has none.
func TestNoFlowtables(t *testing.T) {
	for err, want := range map[error]string{
		unix.EPERM:  "cannot test here whether the kernel has flowtables: apply: operation not permitted",
		unix.ENOENT: "the kernel has no flowtables (CONFIG_NF_FLOW_TABLE): apply: no such file or directory",
	} {
		if got := noFlowtables(fmt.Errorf("apply: %w", err)); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}
