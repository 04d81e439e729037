package iptables_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/test/patience"
)

func ours(chain string) bool { return chain == "OURS" }

// TestReadIsOfOneState: a table that is replaced while it is read, by one of the same size
// and by larger ones, is read as a consistent snapshot.
func TestReadIsOfOneState(t *testing.T) {
	eachBackend(t, func(t *testing.T, b iptables.Backend) {
		k, _ := ownNetns(t, b)
		const rules = 300
		state := func(i, n int) (lines []string) {
			for range n {
				lines = append(lines, fmt.Sprintf("-A OURS -d 10.0.0.%d/32 -j RETURN", i))
			}
			return lines
		}
		var states [][]string
		for i := range 4 {
			states = append(states, state(i, rules+i/2))
		}
		write := func(i int) error {
			lines := append(append([]string{"*nat", ":OURS - [0:0]"}, states[i]...), "COMMIT")
			_, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4, Input: input(lines...), Commits: 1})
			return err
		}
		if err := write(0); err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if err := write(i % len(states)); err != nil {
					done <- err
					return
				}
				time.Sleep(time.Duration(i/20) * time.Millisecond) // longer and longer, for a reading must come between on any machine
			}
		}()
		seen := map[int]bool{}
		for end := time.Now().Add(patience.Of(30 * time.Second)); len(seen) < len(states) && time.Now().Before(end); {
			var got []string
			err := k.Read(t.Context(), iptables.Reading{Family: iptables.IPv4, Table: "nat", Ours: ours}, func(line []byte) error {
				if line[0] == '-' {
					got = append(got, string(line))
				}
				return nil
			})
			if errors.Is(err, iptables.ErrUnreadable) {
				continue // replaced again and again
			}
			i := slices.IndexFunc(states, func(s []string) bool { return slices.Equal(s, got) })
			if err != nil || i < 0 {
				t.Fatalf("%d rules, %v: no state that the table was in", len(got), err)
			}
			seen[i] = true
		}
		close(stop)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(seen) < 2 {
			t.Errorf("only %d of %d states were seen", len(seen), len(states))
		}
	})
}

// TestRestoreGoesFirst: a write does not wait for a read, and a read does
// not begin during a write, because the kernel handles one request for a table at a time.
func TestRestoreGoesFirst(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\ntouch " + dir + "/began\nwhile [ ! -e " + dir + "/go ]; do sleep 0.01; done\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-held-restore"), []byte(script), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	k, err := iptables.Open(iptables.Config{Backend: iptables.Legacy, Programs: iptables.Programs{Suffix: "-held"}, LockFile: filepath.Join(dir, "lock"), Namespace: netnstest.New(t).FD()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	wrote, read := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := k.Restore(t.Context(), iptables.Restore{Family: iptables.IPv4})
		wrote <- err
	}()
	for end := time.Now().Add(patience.Of(30 * time.Second)); ; time.Sleep(10 * time.Millisecond) { // bounded poll: a file sends no notification
		if _, err := os.Stat(filepath.Join(dir, "began")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the program was not started")
		}
	}
	go func() {
		read <- k.Read(t.Context(), iptables.Reading{Family: iptables.IPv4, Table: "nat", Ours: ours}, func([]byte) error { return nil })
	}()
	select {
	case err := <-read:
		t.Errorf("read beside a Restore: %v", err)
		read <- err
	case <-time.After(100 * time.Millisecond): // a reading of nothing takes a hundredth of that
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-wrote, <-read); err != nil {
		t.Error(err)
	}
}
