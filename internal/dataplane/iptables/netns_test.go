package iptables

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nfacct"
)

// netns is a network namespace of a test's own, with a lock file of its own.
type netns struct {
	*iptables.Conn
	*netnstest.Namespace
	backend iptables.Backend
	lock    string
}

// ownNetns makes one and leaves the calling goroutine where it is.
func ownNetns(t testing.TB, b iptables.Backend) *netns {
	t.Helper()
	if _, err := iptables.Installed(b); err != nil {
		t.Skipf("SKIPPED, not run: %v", err) // this backend is not installed; scripts/deps.sh installs both
	}
	n := &netns{Namespace: netnstest.New(t), backend: b, lock: filepath.Join(t.TempDir(), "xtables.lock")}
	n.Conn = n.open(t)
	return n
}

// open makes one more Conn.
func (n *netns) open(t testing.TB) *iptables.Conn {
	t.Helper()
	programs, err := iptables.Installed(n.backend)
	if err != nil {
		t.Fatal(err)
	}
	c, err := iptables.Open(iptables.Config{Backend: n.backend, Programs: programs, LockFile: n.lock, Namespace: n.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// counters are the namespace's.
func (n *netns) counters(t testing.TB) nfacct.Table {
	t.Helper()
	c, err := nfacct.Open(nfacct.Config{NetNS: n.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// inside runs f on a thread in the namespace.
func (n *netns) inside(t testing.TB, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatal(err)
	}
}

// sh runs a shell command in the namespace; $IPT and $IP6T are the programs.
func (n *netns) sh(t testing.TB, script string) string {
	t.Helper()
	var out []byte
	err := n.Do(func() (err error) {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+n.lock,
			"IPT=iptables-"+string(n.backend), "IP6T=ip6tables-"+string(n.backend))
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// save is what iptables-save prints of our tables, without counters and comments.
func (n *netns) save(t testing.TB) string {
	t.Helper()
	var keep []string
	for l := range strings.Lines(n.sh(t, "for t in nat filter mangle; do $IPT-save -t $t; $IP6T-save -t $t; done")) {
		if !strings.HasPrefix(l, "#") {
			chain, _, _ := strings.Cut(l, " [")
			keep = append(keep, strings.TrimSuffix(chain, "\n"))
		}
	}
	return strings.Join(keep, "\n")
}

// eachBackend runs a test on both.
func eachBackend(t *testing.T, test func(t *testing.T, b iptables.Backend)) {
	for _, b := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(b), func(t *testing.T) { test(t, b) })
	}
}

// sections returns the rules of each chain, with the table they stand in.
func sections(saved string) map[string]string {
	out := map[string]string{}
	table, n := "", 0
	for l := range strings.Lines(saved + "\n") {
		switch {
		case strings.HasPrefix(l, "*"):
			n++
			table = strings.TrimSpace(l) + " " + string(rune('0'+n))
		case strings.HasPrefix(l, ":"):
			name, _, _ := strings.Cut(l[1:], " ")
			out[table+" "+name] += ""
		case strings.HasPrefix(l, "-A "):
			name, _, _ := strings.Cut(l[3:], " ")
			out[table+" "+name] += l
		}
	}
	return out
}
