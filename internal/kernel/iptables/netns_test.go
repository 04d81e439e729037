package iptables_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
)

// ownNetns opens a Conn in a network namespace of the test's own, with a lock
// file of its own. It never lets a test run in the initial namespace.
func ownNetns(t *testing.T, b iptables.Backend) (c *iptables.Conn, lockFile string) {
	t.Helper()
	programs, err := iptables.Installed(b)
	if err != nil {
		t.Skipf("SKIPPED, not run: %v", err)
	}
	lockFile = filepath.Join(t.TempDir(), "xtables.lock")
	fd := -1
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		before, _ := os.Readlink("/proc/thread-self/ns/net")
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			if now, _ := os.Readlink("/proc/thread-self/ns/net"); now == before {
				panic("still in network namespace " + now)
			}
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			c, err = iptables.Open(iptables.Config{Backend: b, Programs: programs, LockFile: lockFile, Namespace: fd})
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("SKIPPED, not run: cannot make a network namespace: %v", err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = unix.Close(fd)
	})
	return c, lockFile
}

func eachBackend(t *testing.T, test func(t *testing.T, b iptables.Backend)) {
	for _, b := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(b), func(t *testing.T) { test(t, b) })
	}
}
