package app

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func accept(context.Context, string) error { return nil }

// watchOf watches a file of which "one" was read.
func watchOf(path string, check func(context.Context, string) error) configWatch {
	return configWatch{path: path, read: sha256.Sum256([]byte("one")), check: check, log: slog.New(slog.DiscardHandler)}
}

// With a content that cannot be used the agent goes on, asks for it only once, and ends with the next one that can be.
func TestConfigFileThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", t.TempDir()) // without the programs of iptables its mode cannot run
	good := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	write("one")
	checked := make(chan error, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- watchConfig(t.Context(), watchOf(file, func(ctx context.Context, path string) error {
			err := checkConfig(ctx, path)
			checked <- err
			return err
		}))
	}()
	for _, broken := range []string{"mode: [", good + "mode: turbo\n", good + "mode: iptables\n", ""} {
		write(broken)
		select {
		case err := <-checked:
			if err == nil {
				t.Errorf("%q is taken", broken)
			}
		case err := <-ended:
			t.Fatalf("%q ends the agent: %v", broken, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("%q is not looked at", broken)
		}
	}
	write(good + "mode: nftables\n")
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "changed: exiting") {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the mended file is ignored")
	}
	if n := len(checked); n != 1 {
		t.Errorf("the mended file is looked at %d times; a broken one was looked at again", n)
	}
}

// The process ends when the config file is not what was read any more, however
// and whenever that came about, and for nothing else.
func TestConfigFileChanges(t *testing.T) {
	path := func(dir string) string { return filepath.Join(dir, "config.yaml") }
	write := func(t *testing.T, file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		before, then func(t *testing.T, dir string) // the watch begins, and while it runs
	}{
		"between reading and watching": {before: func(t *testing.T, dir string) { write(t, path(dir), "two") }},
		"in place":                     {then: func(t *testing.T, dir string) { write(t, path(dir), "two") }},
		"by renaming": {then: func(t *testing.T, dir string) {
			write(t, path(dir)+".new", "two")
			must(t, os.Rename(path(dir)+".new", path(dir)))
		}},
		"as ConfigMap mounts do": {
			before: func(t *testing.T, dir string) {
				must(t, os.Mkdir(filepath.Join(dir, "..1"), 0o700))
				must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
				must(t, os.Rename(path(dir), filepath.Join(dir, "..1", "config.yaml")))
				must(t, os.Symlink("..data/config.yaml", path(dir)))
			},
			then: func(t *testing.T, dir string) {
				must(t, os.Mkdir(filepath.Join(dir, "..2"), 0o700))
				write(t, filepath.Join(dir, "..2", "config.yaml"), "two")
				must(t, os.Symlink("..2", filepath.Join(dir, "..tmp")))
				must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, path(dir), "one")
			if c.before != nil {
				c.before(t, dir)
			}
			ended := make(chan error, 1)
			go func() { ended <- watchConfig(t.Context(), watchOf(path(dir), accept)) }()
			if c.then != nil {
				write(t, filepath.Join(dir, "other"), "nothing to do with it")
				write(t, path(dir), "one")
				c.then(t, dir)
			}
			select {
			case err := <-ended:
				if err == nil || !strings.Contains(err.Error(), "changed: exiting") {
					t.Errorf("ended with %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the change is ignored")
			}
		})
	}
}

// A file that is written anew with the same content stays. It is empty for a moment: a machine so busy that this takes longer
// than configSettle proves nothing, then again.
func TestConfigFileThatStays(t *testing.T) {
	for range 20 {
		slowest, err := writtenAnew(t)
		if err == nil {
			return
		}
		if slowest < configSettle {
			t.Fatalf("ended without a change: %v", err)
		}
	}
	t.Fatal("ended twenty times in a row")
}

// writtenAnew returns how long a writing took, and why the watch ended before it was told to.
func writtenAnew(t *testing.T) (slowest time.Duration, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func() {
		begun := time.Now()
		if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(begun))
	}
	write()
	slowest = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- watchConfig(ctx, watchOf(file, accept)) }()
	for range 3 {
		write()
	}
	select {
	case err := <-ended:
		return slowest, err
	case <-time.After(3 * configSettle): // longer than a change would take
	}
	cancel()
	return slowest, <-ended
}
