package iptables_test

import (
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// ownNetns opens a Conn in a network namespace of the test's own, with a lock
// file of its own.
func ownNetns(t *testing.T, b iptables.Backend) (c *iptables.Conn, lockFile string) {
	t.Helper()
	programs, err := iptables.Installed(b)
	if err != nil {
		t.Skipf("SKIPPED, not run: %v", err) // this backend is not installed; scripts/deps.sh installs both
	}
	lockFile = filepath.Join(t.TempDir(), "xtables.lock")
	c, err = iptables.Open(iptables.Config{Backend: b, Programs: programs, LockFile: lockFile, Namespace: netnstest.New(t).FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, lockFile
}

func eachBackend(t *testing.T, test func(t *testing.T, b iptables.Backend)) {
	for _, b := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(b), func(t *testing.T) { test(t, b) })
	}
}
