package app

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainRecalls: where the kernel counts its changes, that nobody has made one is all there is to ask, and a change
// of somebody else's is read; also where an acceleration stands beside the rules.
func TestExplainRecalls(t *testing.T) {
	t.Run("plain", func(t *testing.T) { explainRecalls(t) })
	t.Run("accelerated", func(t *testing.T) {
		explainRecalls(t, "--feature-gates=KubeProxyAcceleration=true", "--offload-packet-threshold=20")
	})
}

func explainRecalls(t *testing.T, more ...string) {
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		t.Fatal("iptables-nft is not installed")
	}
	if code, out := run(t, "cleanup"); code != 0 {
		t.Fatal(out)
	}
	args := agentArgs(folder(t, webService), "--proxy-mode", "iptables", "--iptables-backend", "nft", "--cluster-cidr", "10.244.0.0/16")
	p := begin(t, append(args, more...)...)
	p.says("in sync")
	eventually(t, "it recalls", func() error {
		code, out := run(t, "explain", "shop/web")
		if code != 0 || !strings.Contains(out, "all rules were read") || !strings.Contains(out, "the nf_tables generation shows no write by another program since then") {
			return errors.New(out)
		}
		return nil
	})
	askAll(t, []asks{
		{"explain shop/web", 0, []string{"In kernel  agrees (", " objects, without rules of other programs): all rules were read"}},
		{"audit", 0, []string{"0 missing, 0 different, 0 foreign"}},
	})
	script := `iptables-nft -t nat -A "$(iptables-nft-save -t nat | sed -n 's/^-A \(KUBE-SVC-[A-Z0-9]*\) .*10.244.1.5:8080.*/\1/p' | head -n 1)" -j RETURN`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("add a rule: %v: %s", err, out)
	}
	eventually(t, "it is repaired", func() error {
		if code, out := run(t, "status"); code != 0 || !strings.Contains(out, "(chain nat KUBE-SVC-") {
			return errors.New(out)
		}
		return nil
	})
	askAll(t, []asks{{"explain shop/web", 0, []string{"In kernel  agrees ("}}})
	p.terminate()
}

// TestExplainLooksIntoTheKernel: x_tables tells nobody that a rule was replaced by
// another of the same size, and the next audit is half an hour away. explain sees it at
// its first answer.
func TestExplainLooksIntoTheKernel(t *testing.T) {
	if _, err := exec.LookPath("iptables-legacy"); err != nil {
		t.Fatal("iptables-legacy is not installed")
	}
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
	if code, out := run(t, "cleanup"); code != 0 { // what other tests left would be taken over, with an audit that repairs
		t.Fatal(out)
	}
	p := begin(t, agentArgs(folder(t, webService), "--proxy-mode", "iptables", "--iptables-backend", "legacy", "--cluster-cidr", "10.244.0.0/16")...)
	p.says("in sync")
	askAll(t, []asks{{"explain shop/web", 0, []string{"In kernel  agrees ("}}})
	script := `set -e
chain=$(iptables-legacy-save -t nat | sed -n 's/^-A \(KUBE-SVC-[A-Z0-9]*\) .*10.244.1.5:8080.*/\1/p' | head -n 1)
number=$(iptables-legacy -t nat -S "$chain" | grep '^-A' | grep -n 'to-destination 10.244.1.5:8080' | cut -d: -f1)
rule=$(iptables-legacy -t nat -S "$chain" | grep 'to-destination 10.244.1.5:8080' | sed "s/^-A $chain //; s/:8080/:8081/")
eval iptables-legacy -t nat -R "$chain" "$number" "$rule"`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("replace a rule: %v: %s", err, out)
	}
	code, out := run(t, "explain", "shop/web")
	first, _, _ := strings.Cut(out, "\n")
	if code != 1 || !strings.Contains(first, "forwarded, to 1 endpoint, but another program changed its rules: chain nat KUBE-SVC-") {
		t.Errorf("status %d:\n%s", code, out)
	}
	if !strings.Contains(out, "In kernel  DIFFERS: chain nat KUBE-SVC-") {
		t.Errorf("no difference in:\n%s", out)
	}
	askAll(t, []asks{
		{"audit --repair=false", 1, []string{"0 missing, 1 different, 0 foreign", "different: chain nat KUBE-SVC-", "1 objects in the kernel differ from the desired state; this audit did not repair them"}},
		{"explain shop/web", 1, []string{"In kernel  DIFFERS: chain nat KUBE-SVC-"}},
		{"audit", 1, []string{"0 missing, 1 different, 0 foreign", "(repaired)"}},
	})
	eventually(t, "it is repaired", func() error {
		if code, out := run(t, "explain", "shop/web"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	askAll(t, []asks{{"explain shop/web", 0, []string{" objects compared, without rules of other programs)"}}})
	eventually(t, "another audit may come, and finds nothing", func() error {
		code, out := run(t, "audit", "--foreign")
		if code != 0 || !strings.Contains(out, "other programs at the same hooks: no rule in nftables or iptables-legacy") {
			return errors.New(out)
		}
		return nil
	})
	cmd = exec.CommandContext(t.Context(), "iptables-legacy", "-t", "nat", "-I", "PREROUTING", "-d", "10.96.0.10", "-m", "comment", "--comment", "a -j DROP", "-j", "RETURN")
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("insert a rule: %v: %s", err, out)
	}
	askAll(t, []asks{{"audit --foreign", 1, []string{
		"other: iptables-legacy, table nat of IPv4, chain PREROUTING: exempt from Fairlead's rules packets to 10.96.0.10/32: an address of Service shop/web"}}})
	p.terminate()
}
