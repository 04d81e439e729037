package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long a Restore waits for the lock, as kube-proxy's -w 5.
const lockWait = 5 * time.Second

// lock is the lock file that programs of the legacy backend share. The agent holds it
// itself, so that the check of the stamp and the write are one step. The child process
// receives a lock file of its own, which no other process uses.
type lock struct {
	file  string
	child *os.File
	held  *os.File
}

func openLock(file string) (lock, error) {
	fd, err := unix.MemfdCreate("xtables-lock", unix.MFD_CLOEXEC)
	if err != nil {
		return lock{}, fmt.Errorf("create the child's lock: %w", err)
	}
	return lock{file: cmp.Or(file, os.Getenv("XTABLES_LOCKFILE"), "/run/xtables.lock"), child: os.NewFile(uintptr(fd), "xtables-lock")}, nil
}

func (l *lock) close() error {
	if l.child == nil {
		return nil
	}
	return l.child.Close()
}

// childFD is the descriptor of the lock in a child: the first after the
// standard three.
const childFD = 3

func (l *lock) childEnv() []string {
	return environ(fmt.Sprintf("XTABLES_LOCKFILE=/proc/self/fd/%d", childFD))
}

func (l *lock) childFiles() []*os.File { return []*os.File{l.child} }

// take acquires the lock, with a wait if necessary, and reports whether it waited.
func (l *lock) take(ctx context.Context) (waited bool, err error) {
	f, err := os.OpenFile(l.file, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return false, fmt.Errorf("open the xtables lock: %w", err)
	}
	pause := 2 * time.Millisecond
	for deadline := time.Now().Add(lockWait); ; pause = min(2*pause, 50*time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			l.held = f
			return waited, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return waited, errors.Join(fmt.Errorf("lock the xtables lock file %s: %w", l.file, err), f.Close())
		}
		waited = true
		if time.Now().After(deadline) {
			return waited, errors.Join(&LockError{File: l.file, Holder: holder(f)}, f.Close())
		}
		select {
		case <-ctx.Done():
			return waited, errors.Join(ctx.Err(), f.Close())
		case <-time.After(pause):
		}
	}
}

func (l *lock) release() {
	_ = l.held.Close() // closing releases the lock, whatever Close returns
	l.held = nil
}

// holder returns the holder of the lock according to /proc/locks.
func holder(f *os.File) string {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	inode := ":" + strconv.FormatUint(st.Ino, 10)
	for line := range strings.Lines(string(locks)) {
		w := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 12 00:1a:42 0 EOF
		if len(w) < 6 || w[1] != "FLOCK" || !strings.HasSuffix(w[5], inode) {
			continue
		}
		name, err := os.ReadFile("/proc/" + w[4] + "/comm")
		if err != nil {
			return "process " + w[4]
		}
		return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), w[4])
	}
	return ""
}
