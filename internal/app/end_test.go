package app

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTermBeforeTheFirstWrite: somebody holds the xtables lock while the agent finds out
// what the kernel can do, which it tries again for a minute. Told to end, it ends at once
// and well, and has written nothing.
func TestTermBeforeTheFirstWrite(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	f, err := os.Create(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was not written
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XTABLES_LOCKFILE", lock)
	p := begin(t, "run", "--manifests", t.TempDir(), "--hostname-override", "node-a", "--proxy-mode", "iptables", "--iptables-backend", "legacy")
	eventually(t, "the agent waits for the lock", func() error {
		if p.holds(lock) {
			return nil
		}
		return errors.New("it has not opened it")
	})
	told := time.Now()
	p.terminate()
	if took := time.Since(told); took > 15*time.Second { // to give up by itself takes over 20 s
		t.Errorf("it ended %s after SIGTERM", took)
	}
	if log := p.log(); !strings.Contains(log, "stopped before anything was written") {
		t.Errorf("it does not say that it wrote nothing:\n%s", log)
	}
}

// holds reports whether the process has a file open.
func (p *process) holds(file string) bool {
	open, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "fd", "*"))
	for _, fd := range open {
		if at, err := os.Readlink(fd); err == nil && at == file {
			return true
		}
	}
	return false
}
