package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster/testcluster"
	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
	"github.com/fairlead/fairlead/test/takeover"
)

// TestTakeover takes one node from upstream kube-proxy to Fairlead and back, in each pair of modes, while clients send requests. On
// the way to Fairlead no request may be lost, and in either direction no state of the previous proxy may be left.
func TestTakeover(t *testing.T) {
	bin := filepath.Join(cacheBin(t), "kube-proxy")
	if _, err := os.Stat(bin); err != nil {
		t.Skipf("SKIPPED, not run: no kube-proxy (bash test/cluster/build.sh kube-proxy): %v", err) // the takeover starts from upstream's program
	}
	s := newSuite(t)
	file := filepath.Join(s.dir, "web.yaml")
	must(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: test}\n---"+takeover.Manifests), 0o600))
	must(t, s.cluster.Create(t.Context(), file))
	config := filepath.Join(s.dir, "takeover.kubeconfig")
	must(t, s.cluster.WriteKubeconfig(config, testcluster.Access{}))
	w := walker{t: t, s: s, config: config, kubeProxy: bin}
	modes := []string{"nftables", "iptables-nft", "iptables-legacy"}
	w.run(w.theirs(modes[0]))
	traffic := takeover.Start(t, s.lab.Client())
	for _, theirs := range modes {
		for _, ours := range modes {
			if lost := w.takeOver(traffic, theirs, ours); len(lost) > 0 {
				t.Fatalf("from kube-proxy in %s to %s: %d lost:\n%s\n%s", theirs, ours, len(lost), strings.Join(lost, "\n"), takeover.Rules(t, s.lab.Node()))
			}
		}
	}
	traffic.Stop()
	w.stop()
	t.Logf("answered: %v", traffic.Counts())
	must(t, w.program("cleanup", w.fairlead(), "cleanup"))
	s.cleanNode(t)
}

// takeOver goes back to kube-proxy and then to Fairlead. It returns the requests that were lost on the way to Fairlead.
func (w *walker) takeOver(traffic *takeover.Traffic, theirs, ours string) []string {
	w.t.Helper()
	w.run(w.theirs(theirs))
	must(w.t, w.program("cleanup", w.fairlead(), "cleanup")) // removes Fairlead's rules of the previous round: the way back
	takeover.Eventually(w.t, "only kube-proxy's rules of "+theirs, func() error { return onlyTheirs(w.t, w.s.lab.Node(), theirs) })
	takeover.Eventually(w.t, "kube-proxy in "+theirs+" serves without a loss", func() error {
		traffic.More(w.t, 20)
		lost := traffic.Lost()
		if len(lost) == 0 {
			return nil
		}
		// kube-proxy removes what it classifies as rules of its own other mode before its new rules are in place. Connection attempts in
		// between leave untranslated flows in the kernel for two minutes. These flows must do no harm after the switch to Fairlead.
		w.t.Logf("on the way back to kube-proxy in %s %d were lost, the first: %s", theirs, len(lost), lost[0])
		return errors.New(lost[0])
	})
	traffic.Forget()
	w.run(w.ours(ours))
	takeover.Eventually(w.t, "only rules of "+ours, func() error { return takeover.OnlyMode(w.t, w.s.lab.Node(), ours) })
	traffic.More(w.t, 20)
	lost := traffic.Lost()
	traffic.Forget()
	return lost
}

// walker runs one proxy after the other.
type walker struct {
	t         *testing.T
	s         *suite
	config    string
	kubeProxy string
	now       *netlab.Process
}

func (w *walker) fairlead() string {
	bin := os.Getenv("FAIRLEAD_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "bin", "fairlead")
	}
	abs, err := filepath.Abs(bin)
	must(w.t, err)
	return abs
}

func (w *walker) args(mode string) []string {
	return []string{"--kubeconfig", w.config, "--proxy-mode", mode, "--hostname-override", nodeName, "--conntrack-max-per-core=0",
		"--cluster-cidr", netlab.ClusterCIDR4 + "," + netlab.ClusterCIDR6}
}

func (w *walker) ours(mode string) *exec.Cmd {
	mode, backend, some := strings.Cut(mode, "-")
	args := append([]string{"run"}, w.args(mode)...)
	if some {
		args = append(args, "--iptables-backend", backend)
	}
	return exec.Command(w.fairlead(), args...)
}

// theirs returns the command of kube-proxy, with the programs of one backend in its PATH.
func (w *walker) theirs(mode string) *exec.Cmd {
	mode, backend, some := strings.Cut(mode, "-")
	cmd := exec.Command(w.kubeProxy, append(w.args(mode), "--conntrack-min=0")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see stop
	if !some {
		return cmd
	}
	dir := w.t.TempDir()
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(program + "-" + backend + verb)
			must(w.t, err)
			must(w.t, os.Symlink(path, filepath.Join(dir, program+verb)))
		}
	}
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	return cmd
}

// run ends the running proxy, whose rules stay, and starts another one. It returns when the new proxy is in sync.
func (w *walker) run(cmd *exec.Cmd) {
	w.t.Helper()
	w.stop()
	log, err := os.Create(filepath.Join(w.t.TempDir(), "log"))
	must(w.t, err)
	w.t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); err == nil && w.t.Failed() {
			w.t.Logf("%s:\n%s", cmd, text)
		}
		_ = log.Close()
	})
	cmd.Stdout, cmd.Stderr = log, log
	w.now, err = w.s.lab.Node().Start(cmd)
	must(w.t, err)
	takeover.Eventually(w.t, fmt.Sprintf("%s is in sync", cmd), func() error {
		select {
		case <-w.now.Done():
			return errors.New("it has ended")
		default:
		}
		at, err := kit.Metric(w.t.Context(), w.s.lab.Node(), "kubeproxy_sync_proxy_rules_last_timestamp_seconds")
		if err == nil && at == 0 {
			err = errors.New("no sync yet")
		}
		return err
	})
}

func (w *walker) stop() {
	if w.now != nil {
		w.now.Terminate(30 * time.Second)
		// A container runtime ends all processes of the container. Here an iptables-restore of kube-proxy would otherwise continue and
		// write after Fairlead.
		_ = syscall.Kill(-w.now.Pid(), syscall.SIGKILL) // the agent leads no process group: then no group has that number
		w.now = nil
	}
}

// program runs a program inside the node and waits for its end.
func (w *walker) program(name, path string, args ...string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if out, err := w.s.lab.Node().Run(ctx, path, args...); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// onlyTheirs returns an error that lists what is left of Fairlead next to kube-proxy's rules.
func onlyTheirs(t *testing.T, node *netlab.Host, mode string) error {
	t.Helper()
	out := takeover.Shell(t, node, "nft list tables | grep fairlead || true; for b in nft legacy; do for p in iptables ip6tables; do "+
		"$p-$b-save 2>/dev/null | grep -E 'KUBE-(HAIRPIN|LOCALNET|REJECT|[TXWNH]-)' || true; done; done")
	if out != "" {
		return fmt.Errorf("left of Fairlead beside kube-proxy in %s mode: %.200s", mode, out)
	}
	return nil
}
