package iptables_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/test/patience"
)

func input(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

func restore(t *testing.T, k iptables.Kernel, lines ...string) iptables.Stamp {
	t.Helper()
	in := input(lines...)
	s, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: in, Commits: strings.Count(string(in), "COMMIT")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStampFollowsEveryWrite: the stamp after our own write is the present one,
// in both tables of one run, and any other write moves it.
func TestStampFollowsEveryWrite(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		k, _ := ownNetns(t, b)
		first := restore(t, k, "*nat", ":A - [0:0]", "-A A -j RETURN", "COMMIT", "*filter", ":B - [0:0]", "COMMIT")
		if now, err := k.Stamp(t.Context()); err != nil || now != first {
			t.Fatalf("stamp is %v, %v; Restore said %v", now, err, first)
		}
		restore(t, k, "*nat", "-A A -p tcp -j RETURN", "COMMIT")
		_, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: input("*nat", "-X A", "COMMIT"), Commits: 1, Expect: first})
		if !errors.Is(err, iptables.ErrMoved) {
			t.Fatalf("restore on an old stamp: %v", err)
		}
		rules, err := k.List(t.Context(), iptables.IPv4, "nat", "A")
		if want := []string{"-A A -j RETURN", "-A A -p tcp -j RETURN"}; err != nil || !slices.Equal(rules, want) {
			t.Fatalf("chain holds %q, %v, want %q", rules, err, want)
		}
	})
}

func TestMissingChainsAndTablesAreEmpty(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		k, _ := ownNetns(t, b)
		for _, f := range []iptables.Family{iptables.IPv4, iptables.IPv6} {
			if rules, err := k.List(t.Context(), f, "nat", "KUBE-NONE"); err != nil || len(rules) > 0 {
				t.Errorf("missing chain of %d: %q, %v", f, rules, err)
			}
			if err := k.Save(t.Context(), f, "mangle", func([]byte) error { return nil }); err != nil {
				t.Errorf("empty table of %d: %v", f, err)
			}
			for _, table := range []string{"mangle", "nonesuch"} {
				r := iptables.Reading{Family: f, Table: table, Ours: func(string) bool { return true }}
				if err := k.Read(t.Context(), r, func(line []byte) error { return errors.New(string(line)) }); err != nil {
					t.Errorf("table %s of %d is read as %v", table, f, err)
				}
			}
		}
	})
}

// TestRefusals: what a user reads, and which line is blamed.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, line string
		blamed     map[iptables.Backend]int // 0: the COMMIT
		says       string
	}{
		{"kernel or library without a match", "-A A -m nonesuch -j RETURN", both(6), "Couldn't load match `nonesuch'"},
		{"jump to nowhere", "-A A -j KUBE-GONE", both(6), "KUBE-GONE"},
		{"bad address", "-A A -d 300.1.2.3 -j RETURN", both(6), "300.1.2.3"},
		{"refused by the kernel", "-A A -d 1.2.3.4/32 -j REJECT", map[iptables.Backend]int{iptables.NFT: 6}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b iptables.Backend) {
				k, _ := ownNetns(t, b)
				in := input("*filter", ":B - [0:0]", "COMMIT", "*nat", ":A - [0:0]", c.line, "COMMIT")
				s, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: in, Commits: 2})
				var refused *iptables.RestoreError
				if !errors.As(err, &refused) {
					t.Fatalf("restore says %v", err)
				}
				if !strings.Contains(refused.Error(), c.says) || !strings.Contains(refused.Error(), "iptables-"+string(b)+"-restore") {
					t.Errorf("the message is %q", refused)
				}
				if want := c.blamed[b]; want == 0 != refused.Commit || want > 0 && !slices.Equal(refused.Lines[:1], []int{want}) {
					t.Errorf("blamed %v (commit: %v), want %d", refused.Lines, refused.Commit, want)
				}
				if refused.Committed != 1 {
					t.Errorf("%d tables written before it, want 1", refused.Committed)
				}
				if now, err := k.Stamp(t.Context()); err != nil || now != s {
					t.Errorf("stamp is %v, %v; Restore said %v", now, err, s)
				}
			})
		})
	}
}

func both(line int) map[iptables.Backend]int {
	return map[iptables.Backend]int{iptables.Legacy: line, iptables.NFT: line}
}

// TestHeldLock: we wait for another program, count it, and say who it is when it
// takes too long. The nf_tables programs have no lock.
func TestHeldLock(t *testing.T) {
	k, file := ownNetns(t, iptables.Legacy)
	other, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	hold := func(how int) {
		t.Helper()
		if err := unix.Flock(int(other.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	write := func() error {
		_, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: input("*nat", "COMMIT"), Commits: 1})
		return err
	}
	if err := write(); err != nil || k.Contended() != 0 {
		t.Fatalf("free lock: %v, %d contended", err, k.Contended())
	}
	for held := 50 * time.Millisecond; k.Contended() == 0; held *= 2 { // on a busy machine it may be given up before we come
		hold(unix.LOCK_EX)
		free := make(chan error, 1)
		time.AfterFunc(held, func() { free <- unix.Flock(int(other.Fd()), unix.LOCK_UN) })
		if err := errors.Join(write(), <-free); err != nil || held > 2*time.Second {
			t.Fatalf("lock given up after %s: %v, %d contended", held, err, k.Contended())
		}
	}
	hold(unix.LOCK_EX)
	err = write()
	var held *iptables.LockError
	if !errors.As(err, &held) || !strings.Contains(err.Error(), "(pid ") || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "holds the xtables lock") {
		t.Fatalf("lock kept: %v", err)
	}
	t.Log(err)
}

// TestMissingPrograms: what a user of a minimal image reads.
func TestMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := iptables.Detect(t.Context())
	if !errors.Is(err, iptables.ErrNoPrograms) || !strings.Contains(err.Error(), "install the package iptables, or use --proxy-mode nftables") {
		t.Fatalf("detect says %v", err)
	}
	t.Log(err)
}

// TestChildThatKeepsTheOutput: a killed program has started another one, which
// continues and keeps the output open. The Conn does not wait for that one.
func TestChildThatKeepsTheOutput(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nsleep 600 &\necho $! > " + dir + "/child\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-slow"), []byte(script), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	k, err := iptables.Open(iptables.Config{Backend: iptables.NFT, Programs: iptables.Programs{Suffix: "-slow"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := k.List(ctx, iptables.IPv4, "nat", "KUBE-SERVICES")
		done <- err
	}()
	child := 0
	for end := time.Now().Add(patience.Of(30 * time.Second)); child == 0; time.Sleep(10 * time.Millisecond) { // bounded poll of a file
		if text, err := os.ReadFile(filepath.Join(dir, "child")); err == nil {
			child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if time.Now().After(end) {
			t.Fatal("the program was not started")
		}
	}
	defer func() { _ = unix.Kill(child, unix.SIGKILL) }()
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a program that was ended is said to have done its work")
		}
	case <-time.After(patience.Of(30 * time.Second)):
		t.Error("we wait for the child of the program")
	}
}
